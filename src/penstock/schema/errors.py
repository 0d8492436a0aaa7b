"""Errors of the schema registry. Each has the error number that clients of schema registries know; the first three
digits are the HTTP status."""

from __future__ import annotations

from typing import ClassVar

from penstock.core.errors import InvalidRequest


class RegistryError(InvalidRequest):
    number: ClassVar[int] = 422

    @property
    def status(self) -> int:
        return int(str(self.number)[:3])


class SubjectNotFound(RegistryError):
    number = 40401


class VersionNotFound(RegistryError):
    number = 40402


class SchemaNotFound(RegistryError):
    number = 40403


class SubjectSoftDeleted(RegistryError):
    """The subject was soft-deleted before, and can be undeleted."""

    number = 40404


class SubjectNotSoftDeleted(RegistryError):
    """A permanent delete needs a soft delete first."""

    number = 40405


class VersionSoftDeleted(RegistryError):
    number = 40406


class VersionNotSoftDeleted(RegistryError):
    number = 40407


class CompatibilityNotConfigured(RegistryError):
    number = 40408


class ModeNotConfigured(RegistryError):
    number = 40409


class IncompatibleSchema(RegistryError):
    """`details["problems"]` lists the reasons, each with its path and the change that would fix it."""

    number = 409


class InvalidSchema(RegistryError):
    """The schema is invalid or not supported. `details["path"]` is the position of the fault, if that is known."""

    number = 42201


class InvalidVersion(RegistryError):
    number = 42202


class InvalidCompatibility(RegistryError):
    number = 42203


class InvalidMode(RegistryError):
    number = 42204


class OperationNotPermitted(RegistryError):
    number = 42205


class ReferenceExists(RegistryError):
    """The schema is still in use: by another schema, by messages or by an archive."""

    number = 42206
