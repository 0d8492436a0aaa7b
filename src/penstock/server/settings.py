"""The settings: from a TOML file, then environment variables, then flags. A later source overrides an earlier one. An
unknown setting is an error."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.broker.topics.topics import AutoCreate
from penstock.core.errors import InvalidRequest
from penstock.core.limits import Limits, WireLimits
from penstock.core.units import parse_duration_ms, parse_size
from penstock.server.logs import FORMATS, LEVELS
from penstock.server.tls import TlsFiles
from penstock.storage.log.append_result import Durability

ENVIRONMENT: Final = "PENSTOCK_"
_OTHER_VARIABLES: Final = frozenset(
    {
        "PENSTOCK_CONFIG",
        "PENSTOCK_FAILPOINT",
        "PENSTOCK_KERNEL_CACHE",
        "PENSTOCK_LOCAL_MAX",
        "PENSTOCK_REGISTRY_TOKEN",
        "PENSTOCK_SPARK_CACHE",
        "PENSTOCK_SPARK_LOG",
        "PENSTOCK_SPARK_TRAINING",
        "PENSTOCK_TOKEN",
        "PENSTOCK_TOKEN_FILE",
        "PENSTOCK_TOPIC",
        "PENSTOCK_URL",
        "PENSTOCK_WAREHOUSE",
    }
)
"""The environment variables that begin with `PENSTOCK_` but name no setting of the broker. They are not taken for
unknown settings."""
_OFF: Final = "off"
_KUBERNETES: Final = re.compile("PENSTOCK_(PORT$|PORT_|SERVICE_)")  # set by Kubernetes for a service called penstock
_WHOLE: Final = re.compile("[0-9]{1,15}")
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFiles:
    """The issuer and audience of trusted tokens, and the paths of the files with the keys that verify them. The files
    are not read here."""

    issuer: str
    audience: str
    secret: Path | None = None
    """The file with the shared secret for HS256."""

    jwks: Path | None = None
    """The file with the public keys for RS256 and ES256, as a JSON Web Key Set."""


class Auth(StrEnum):
    """The setting that makes authentication mandatory."""

    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `penstock serve`. A port that is None is off; 0 is any free one."""

    data: Path = Path("penstock-data")
    host: str = "127.0.0.1"
    tcp_port: int | None = 7450
    ws_port: int | None = 7451
    http_port: int | None = 7452
    http_logs: bool = True
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    ws_origins: tuple[str, ...] = ()
    allow_plaintext: bool = False
    allow_anonymous: bool = False
    auth: Auth = Auth.OFF
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_secret_file: Path | None = None
    jwt_jwks_file: Path | None = None
    log_level: str = "info"
    log_format: str = "text"
    auto_create: AutoCreate = AutoCreate.RELIABLE
    durability: Durability = Durability.SYNC
    limits: WireLimits = field(default_factory=WireLimits)
    storage: Limits = field(default_factory=Limits)

    @property
    def tls(self) -> TlsFiles | None:
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(cert=self.tls_cert, key=self.tls_key, ca=self.tls_ca)

    @property
    def requires_authentication(self) -> bool:
        """True if every client must authenticate."""
        return self.auth is Auth.ON

    @property
    def token_files(self) -> TokenFiles | None:
        if self.jwt_issuer is None or self.jwt_audience is None:
            return None
        return TokenFiles(
            issuer=self.jwt_issuer, audience=self.jwt_audience, secret=self.jwt_secret_file, jwks=self.jwt_jwks_file
        )

    def check(self) -> Settings:
        """Check that the settings fit together, and return self. Raises `InvalidRequest` with a message that says what
        to change."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidRequest("TLS needs both a certificate and its key: give --tls-cert and --tls-key")
        if self.tls_ca is not None and self.tls_cert is None:
            raise InvalidRequest("--tls-ca asks clients for certificates, which needs --tls-cert and --tls-key too")
        if self.tcp_port is None and self.ws_port is None:
            raise InvalidRequest("both ports are off: nobody could connect")
        self._check_ports()
        self._check_tokens()
        self.limits.check()
        self.storage.check()
        self._check_exposure()
        return self

    def _check_ports(self) -> None:
        chosen = [port for port in (self.tcp_port, self.ws_port, self.http_port) if port]
        shared = [port for port in chosen if chosen.count(port) > 1]
        if shared:
            raise InvalidRequest(f"TCP, WebSocket and HTTP cannot share port {shared[0]}: choose another")

    def _check_tokens(self) -> None:
        named = (self.jwt_issuer, self.jwt_audience)
        files = (self.jwt_secret_file, self.jwt_jwks_file)
        if not any((*named, *files)):
            return
        if not self.requires_authentication:
            raise InvalidRequest("tokens (--jwt-...) are looked at only with authentication: give --auth on too")
        if not all(named) or not any(files):
            raise InvalidRequest(
                "tokens need --jwt-issuer, --jwt-audience and the keys that sign them: --jwt-jwks-file (RS256, ES256)"
                " or --jwt-secret-file (HS256)"
            )

    def _check_exposure(self) -> None:
        """Require TLS and authentication if other machines can connect, unless a setting explicitly gives up the one or
        the other. Raises `InvalidRequest`."""
        if is_loopback(self.host):
            return
        missing = []
        if self.tls is None and not self.allow_plaintext:
            missing.append("TLS (--tls-cert and --tls-key, or --allow-plaintext)")
        if self.tls_ca is None and not self.requires_authentication and not self.allow_anonymous:
            missing.append("authentication (--auth on, --tls-ca for client certificates, or --allow-anonymous)")
        if missing:
            raise InvalidRequest(
                f"listening on {self.host} lets other machines in, and needs {' and '.join(missing)};"
                " leave out --host to listen on this machine only"
            )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# parsers of values


def _port(value: Any) -> int | None:
    if value is False or (isinstance(value, str) and value.lower() == _OFF):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65_535:
        raise InvalidRequest(f"a port is a number from 0 to 65535, or 'off', not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise InvalidRequest(f"expected true or false, not {value!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"expected a text, not {value!r}")
    return value


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise InvalidRequest(f"expected a list of texts, not {value!r}")


def _one_of(known: Iterable[str]) -> Callable[[Any], str]:
    words = tuple(known)

    def parse(value: Any) -> str:
        if value not in words:
            raise InvalidRequest(f"expected one of {', '.join(words)}, not {value!r}")
        return str(value)

    return parse


def _member(kind: type[_Word]) -> Callable[[Any], _Word]:
    known = _one_of(each.value for each in kind)
    return lambda value: kind(known(value))


def _amount(name: str) -> Callable[[Any], int]:
    """Return the parser for a setting that is a number. If the name contains `_bytes`, the parser also accepts sizes
    with a unit, and if it contains `_ms`, durations with a unit."""

    def parse(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        text = _text(value)
        if _WHOLE.fullmatch(text):
            return int(text)
        if "_bytes" in name:
            return parse_size(text)
        if "_ms" in name:
            return parse_duration_ms(text)
        raise InvalidRequest(f"expected a whole number, not {value!r}")

    return parse


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: the section and the key of its place in the file, and the parser of its value."""

    name: str
    section: str
    key: str
    parse: Callable[[Any], Any]

    @property
    def variable(self) -> str:
        return f"{ENVIRONMENT}{self.name.upper()}"


LIMITS: Final = "limits"
STORAGE: Final = "storage"
SETTINGS: Final = (
    Setting("data", "server", "data", _path),
    Setting("host", "server", "host", _text),
    Setting("tcp_port", "server", "tcp_port", _port),
    Setting("ws_port", "server", "ws_port", _port),
    Setting("http_port", "server", "http_port", _port),
    Setting("http_logs", "server", "http_logs", _flag),
    Setting("ws_origins", "server", "ws_origins", _texts),
    Setting("allow_plaintext", "server", "allow_plaintext", _flag),
    Setting("allow_anonymous", "server", "allow_anonymous", _flag),
    Setting("tls_cert", "tls", "cert", _path),
    Setting("tls_key", "tls", "key", _path),
    Setting("tls_ca", "tls", "ca", _path),
    Setting("auth", "auth", "mode", _member(Auth)),
    Setting("jwt_issuer", "auth", "jwt_issuer", _text),
    Setting("jwt_audience", "auth", "jwt_audience", _text),
    Setting("jwt_secret_file", "auth", "jwt_secret_file", _path),
    Setting("jwt_jwks_file", "auth", "jwt_jwks_file", _path),
    Setting("log_level", "log", "level", _one_of(LEVELS)),
    Setting("log_format", "log", "format", _one_of(FORMATS)),
    Setting("auto_create", "topics", "auto_create", _member(AutoCreate)),
    Setting("durability", "topics", "durability", _member(Durability)),
    *(Setting(f"limits_{each.name}", LIMITS, each.name, _amount(each.name)) for each in fields(WireLimits)),
    *(Setting(f"storage_{each.name}", STORAGE, each.name, _amount(each.name)) for each in fields(Limits)),
)
"""All settings. The section `limits` has a setting for each field of `WireLimits`, and `storage` one for each field of
`Limits`."""

_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
_BY_VARIABLE: Final = {setting.variable: setting for setting in SETTINGS}
_SECTIONS: Final = tuple(dict.fromkeys(setting.section for setting in SETTINGS))


def load(
    file: Path | None = None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings from a file, the environment and flags, checked. Raises `InvalidRequest`, with the source and
    the key that is wrong."""
    values: dict[str, Any] = {}
    for source in (_from_file(file), _from_environment(environment), _from_flags(flags or {})):
        values |= source
    limits, storage = _within(values, LIMITS), _within(values, STORAGE)
    others = {name: value for name, value in values.items() if _BY_NAME[name].section not in (LIMITS, STORAGE)}
    return Settings(**others, limits=WireLimits(**limits), storage=Limits(**storage)).check()


def _within(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the values of one section of the settings, by their key in that section."""
    return {_BY_NAME[name].key: value for name, value in values.items() if _BY_NAME[name].section == section}


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        tables = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the configuration {file} cannot be read: {error}") from None
    except ValueError as error:  # also for a number that is too long
        raise InvalidRequest(f"{file} is not TOML: {error}") from None
    values: dict[str, Any] = {}
    for section, table in tables.items():
        keys = {setting.key: setting for setting in SETTINGS if setting.section == section}
        if not keys:
            raise _unknown(f"{file}: section [{section}]", section, _SECTIONS)
        if not isinstance(table, dict):
            raise InvalidRequest(f"{file}: {section} is a section: write [{section}] above its keys")
        for key, value in table.items():
            if key not in keys:
                raise _unknown(f"{file}: {section}.{key}", key, keys)
            values[keys[key].name] = _parsed(keys[key], value, f"{file}: {section}.{key}")
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT) or variable in _OTHER_VARIABLES or _KUBERNETES.match(variable):
            continue
        if variable not in _BY_VARIABLE:
            raise _unknown(variable, variable, _BY_VARIABLE)
        values[_BY_VARIABLE[variable].name] = _parsed(_BY_VARIABLE[variable], value, variable)
    return values


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _parsed(_BY_NAME[name], value, f"--{name.replace('_', '-')}")
        for name, value in flags.items()
        if value is not None
    }


def _parsed(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.parse(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error.message}", setting=where) from None


def _unknown(where: str, name: str, known: Iterable[str]) -> InvalidRequest:
    close = difflib.get_close_matches(name, list(known), n=1)
    advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
    return InvalidRequest(f"{where} is not a setting: {advice}", setting=where)
