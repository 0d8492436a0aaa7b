"""What a registry refuses. Each has the number by which clients of schema registries know it; its first three digits
are the HTTP status."""

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
    """It was deleted before, and can be brought back."""

    number = 40404


class SubjectNotSoftDeleted(RegistryError):
    """What goes for good is deleted softly first."""

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
    """`details["problems"]` says why, each with its path and what would mend it."""

    number = 409


class InvalidSchema(RegistryError):
    """`details["path"]`, where it is known, says where."""

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
    """Something still uses it: another schema, messages, an archive."""

    number = 42206
