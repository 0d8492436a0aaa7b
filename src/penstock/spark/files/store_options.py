"""Options of object stores: the names of all options, the division into those of the store and those of its connection,
and suggestions for wrong names.

The store's client knows its own options and refuses unknown names. The tables here separate the store's options from
the connection's, which its constructor takes separately, and suggest the intended name. No store is opened here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import InvalidRequest

CONNECTION: Final[Mapping[str, type]] = {
    "allow_http": bool,
    "allow_invalid_certificates": bool,
    "connect_timeout": str,
    "default_content_type": str,
    "http1_only": bool,
    "http2_keep_alive_interval": str,
    "http2_keep_alive_timeout": str,
    "http2_keep_alive_while_idle": str,
    "http2_only": bool,
    "pool_idle_timeout": str,
    "pool_max_idle_per_host": str,
    "proxy_ca_certificate": str,
    "proxy_excludes": str,
    "proxy_url": str,
    "randomize_addresses": bool,
    "read_timeout": str,
    "root_certificate": str,
    "timeout": str,
    "user_agent": str,
}
"""Options of the connection and the types of their values. They are the same for all stores; any other option is the
store's own."""

_PREFIXES: Final = ("aws_", "azure_storage_", "azure_", "google_")
"""Prefixes of options. The store's client takes most options with and without them."""

_AMAZON: Final = (
    "aws_access_key_id",
    "aws_bucket",
    "aws_checksum_algorithm",
    "aws_conditional_put",
    "aws_container_authorization_token_file",
    "aws_container_credentials_full_uri",
    "aws_container_credentials_relative_uri",
    "aws_copy_if_not_exists",
    "aws_default_region",
    "aws_disable_bulk_delete",
    "aws_disable_tagging",
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_endpoint_url_sts",
    "aws_imdsv1_fallback",
    "aws_metadata_endpoint",
    "aws_region",
    "aws_request_payer",
    "aws_role_arn",
    "aws_role_session_name",
    "aws_s3_express",
    "aws_secret_access_key",
    "aws_server_side_encryption",
    "aws_session_token",
    "aws_skip_signature",
    "aws_sse_bucket_key_enabled",
    "aws_sse_customer_key_base64",
    "aws_sse_kms_key_id",
    "aws_unsigned_payload",
    "aws_virtual_hosted_style_request",
    "aws_web_identity_token_file",
)
_GOOGLE: Final = (
    "google_application_credentials",
    "google_base_url",
    "google_bearer_token",
    "google_bucket",
    "google_service_account",
    "google_service_account_key",
    "google_skip_signature",
)
_AZURE: Final = (
    "azure_storage_account_key",
    "azure_storage_account_name",
    "azure_authority_host",
    "azure_client_id",
    "azure_client_secret",
    "azure_container_name",
    "azure_credential_type",
    "azure_disable_tagging",
    "azure_storage_encryption_key",
    "azure_endpoint",
    "azure_fabric_cluster_identifier",
    "azure_fabric_session_token",
    "azure_fabric_token_service_url",
    "azure_fabric_workload_host",
    "azure_federated_token_file",
    "azure_msi_endpoint",
    "azure_msi_resource_id",
    "azure_object_id",
    "azure_storage_sas_key",
    "azure_skip_signature",
    "azure_tenant_id",
    "azure_storage_token",
    "azure_use_azure_cli",
    "azure_storage_use_emulator",
    "azure_use_fabric_endpoint",
)
_STORES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "s3": ("aws_", _AMAZON),
    "s3a": ("aws_", _AMAZON),
    "gs": ("google_", _GOOGLE),
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), ("azure_", _AZURE)),
}
_REFUSED: Final = re.compile(r"'([^']*)' is not valid")
"""Pattern of the message with which the store's client refuses an option."""


def option_names(url: str) -> tuple[str, ...]:
    """Return every option of the store at a URL, with its full name; empty for a store that is not in the tables."""
    prefix, own = _STORES.get(urlsplit(url).scheme, ("", ()))
    return (*own, *(f"{prefix}{name}" for name in CONNECTION)) if own else ()


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return two dicts: the options of the store and those of the connection. Raises `InvalidRequest` if a flag of the
    connection is neither `true` nor `false`. Unknown names count as the store's."""
    config: dict[str, str] = {}
    connection: dict[str, Any] = {}
    for option, value in options.items():
        name = option.lower()
        kind = CONNECTION.get(_bare(name))
        if kind is None:
            config[name] = value
        else:
            connection[_bare(name)] = _flag(option, value) if kind is bool else value
    return config, connection


def unknown_option(url: str, said: str) -> InvalidRequest:
    """Return the error for an option that the store does not have, with a suggestion; `said` is the message of the
    store's client, which names the option."""
    match = _REFUSED.search(said)
    wrong = match[1] if match else ""
    known = {_bare(name): name for name in option_names(url)}
    near = get_close_matches(_bare(wrong), known, n=1)
    hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values()) or 'others'}"
    return InvalidRequest(f"storage.{wrong}: the object store {url} has no such option: {hint}", url=url, option=wrong)


def _bare(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def _flag(name: str, value: str) -> bool:
    flag = {"true": True, "false": False}.get(value.lower())
    if flag is None:
        raise InvalidRequest(f"storage.{name}={value!r}: true or false", option=name)
    return flag
