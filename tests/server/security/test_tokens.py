"""Tokens: valid ones, and every way to pretend to be another principal."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from tests.server.security.token_kit import (
    AUDIENCE,
    ISSUER,
    SECRET,
    Files,
    claims,
    ec_key,
    forged,
    hs256,
    jwk,
    raw,
    rsa_key,
    signed,
)

from penstock.broker.access.policy import Principal
from penstock.core.errors import InvalidRequest, Unauthorized
from penstock.server.security.tokens import BINDINGS_MAX, LEEWAY_SECONDS, TokenVerifier
from penstock.server.settings import TokenFiles


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.make(tmp_path)


def trusting(files: Files, *, secret: bool = True, jwks: bool = True) -> TokenVerifier:
    given = {"secret": files.secret if secret else None, "jwks": files.jwks if jwks else None}
    return TokenVerifier(TokenFiles(issuer=ISSUER, audience=AUDIENCE, **given))


@pytest.fixture
def trust(files: Files) -> TokenVerifier:
    return trusting(files)


def refused(trust: TokenVerifier, token: str) -> str:
    with pytest.raises(Unauthorized) as caught:
        trust.verify(token)
    assert token not in caught.value.message
    assert not token.split(".")[-1] or token.split(".")[-1] not in caught.value.message
    return caught.value.message


# good ones


@pytest.mark.parametrize(
    "make", [hs256, lambda **more: signed(rsa_key(), "r1", **more), lambda **more: signed(ec_key(), "e1", **more)]
)
def test_a_good_token_speaks_for_its_subject(trust: TokenVerifier, make: Any) -> None:
    found = trust.verify(make(penstock=["consumer@topic:orders.#", "viewer"]))
    assert found.name == "jwt:ann"
    assert [str(each) for each in found.bindings] == ["consumer@topic:/default/orders.#", "viewer@server"]
    assert found.key_id in trust.marks
    assert found.expires_ms is not None
    assert found.expires_ms > time.time() * 1000


def test_a_token_without_a_kid_is_good_where_one_key_alone_has_its_algorithm(
    files: Files, trust: TokenVerifier
) -> None:
    assert trust.verify(signed(ec_key())).name == "jwt:ann"
    files.publish(jwk(ec_key(), "e1"), jwk(ec_key("other"), "e2"))
    assert trust.reload_if_changed()
    assert "kid" in refused(trust, signed(ec_key()))


def test_the_same_token_is_verified_once(trust: TokenVerifier) -> None:
    token = hs256()
    assert trust.verify(token) is trust.verify(token)


def test_a_token_may_be_for_several_audiences(trust: TokenVerifier) -> None:
    assert isinstance(trust.verify(hs256(aud=["other", AUDIENCE])), Principal)


# attacks


def test_none_is_no_algorithm(trust: TokenVerifier) -> None:
    names: list[Any] = ["none", "None", "NONE", "", None, 0, [], "HS512", "RS512", "PS256", "EdDSA"]
    for name in names:
        for signature in (b"", b"x"):
            assert "no trusted key" in refused(trust, raw({"alg": name, "typ": "JWT"}, claims(), signature))
    assert refused(trust, raw({"typ": "JWT"}, claims()))


def test_a_public_key_is_not_taken_for_a_secret(files: Files) -> None:
    pem = (
        rsa_key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    for secret in (pem, json.dumps(jwk(rsa_key(), "r1")).encode(), files.jwks.read_bytes()):
        for head in ({"alg": "HS256", "kid": "r1"}, {"alg": "HS256"}):
            token = forged(head, claims(), secret)
            assert refused(trusting(files), token)
            assert "no trusted key" in refused(trusting(files, secret=False), token)


def test_one_key_does_not_verify_in_the_name_of_another(trust: TokenVerifier) -> None:
    assert "signature" in refused(trust, signed(rsa_key("other"), "r1"))
    assert "no trusted key" in refused(trust, signed(rsa_key(), "e1"))
    assert "no trusted key" in refused(trust, signed(ec_key(), "r1"))
    assert "no trusted key" in refused(trust, signed(ec_key(), "unknown"))
    assert "no trusted key" in refused(trust, hs256(headers={"kid": "r1"}))
    assert "signature" in refused(trust, hs256(secret="another secret of at least thirty-two bytes"))


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk", "x5c"])
def test_a_token_does_not_bring_its_own_key(trust: TokenVerifier, name: str) -> None:
    own = rsa_key("other")
    given = {"jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/x", "jwk": jwk(own, "r1"), "x5c": ["AAAA"]}
    token = jwt.encode(claims(), own, "RS256", headers={"kid": "r1", name: given[name]})
    assert "signature" in refused(trust, token)


def test_what_a_token_calls_critical_is_not_understood(trust: TokenVerifier) -> None:
    assert refused(trust, hs256(headers={"crit": ["exp"]}))


def test_times_are_kept_but_for_a_small_leeway(trust: TokenVerifier) -> None:
    now = int(time.time())
    assert "expired" in refused(trust, hs256(exp=now - LEEWAY_SECONDS - 60))
    assert "not hold yet" in refused(trust, hs256(nbf=now + LEEWAY_SECONDS + 60))
    assert trust.verify(hs256(nbf=None)).name == "jwt:ann"
    wrongs: list[Any] = ["soon", 1e400, -1, True, [], {}]
    for wrong in wrongs:
        assert refused(trust, _with(exp=wrong))


def _with(**more: Any) -> str:
    """Signed as it should be, with claims that a library would not encode."""
    return forged({"alg": "HS256"}, claims() | more, SECRET.encode())


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["1999999999", True, [1999999999], {}, "soon"])
def test_a_time_that_is_no_number_is_refused_by_its_name(trust: TokenVerifier, name: str, value: Any) -> None:
    token = forged({"alg": "HS256", "typ": "JWT"}, claims(**{name: value}), SECRET.encode())
    assert f"{name} is a number" in refused(trust, token)


def test_a_time_that_is_nothing_or_no_end_is_refused(trust: TokenVerifier) -> None:
    for value in (float("nan"), float("inf")):
        refused(trust, forged({"alg": "HS256"}, claims(exp=value), SECRET.encode()))
    body = json.dumps(claims()).replace(str(claims()["exp"]), "1e999").encode()
    refused(trust, signed_bytes(b'{"alg":"HS256"}', body))
    assert trust.verify(forged({"alg": "HS256"}, claims(exp=time.time() + 60.5), SECRET.encode())).name == "jwt:ann"


def signed_bytes(head: bytes, body: bytes) -> str:
    """A right HMAC over these very bytes."""
    content = raw(head, body).rpartition(".")[0]
    digest = hmac.new(SECRET.encode(), content.encode(), hashlib.sha256).digest()
    return f"{content}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("head", "member"),
    [
        (b'{"alg":"HS256"}', b'"sub":"root",'),
        (b'{"alg":"HS256"}', b'"exp":9999999999,'),
        (b'{"alg":"HS256"}', b'"more":{"a":1,"a":2},'),
        (b'{"alg":"none","alg":"HS256"}', b""),
        (b'{"alg":"HS256","kid":"x","k\\u0069d":"y"}', b""),
    ],
)
def test_a_member_that_is_there_twice_is_refused(trust: TokenVerifier, head: bytes, member: bytes) -> None:
    body = json.dumps(claims()).encode()
    assert trust.verify(signed_bytes(b'{"alg":"HS256"}', body)).name == "jwt:ann"
    assert "twice" in refused(trust, signed_bytes(head, b"{" + member + body[1:]))


@pytest.mark.parametrize("name", ["exp", "iss", "aud", "sub"])
def test_every_claim_that_matters_must_be_there(trust: TokenVerifier, name: str) -> None:
    gone: dict[str, Any] = {name: None}
    assert refused(trust, hs256(**gone))


def test_a_token_for_others_or_from_others_is_not_for_us(trust: TokenVerifier) -> None:
    assert "audience" in refused(trust, hs256(aud="other"))
    assert refused(trust, hs256(aud=[]))
    assert "issuer" in refused(trust, hs256(iss="https://other.example"))
    assert "issuer" in refused(trust, hs256(iss=f"{ISSUER}/"))


@pytest.mark.parametrize(
    "given",
    ["admin", {"admin": 1}, [1], ["king"], ["admin@nowhere"], ["viewer"] * (BINDINGS_MAX + 1), None, [["admin"]]],
)
def test_bindings_that_are_none_spoil_the_whole_token(trust: TokenVerifier, given: Any) -> None:
    assert refused(trust, _with(penstock=given))


@pytest.mark.parametrize("subject", ["", "a b", "a\nb", "x" * 200, 7, ["ann"], "\0"])
def test_a_subject_that_cannot_be_written_down_is_nobody(trust: TokenVerifier, subject: Any) -> None:
    assert refused(trust, _with(sub=subject))


@pytest.mark.parametrize(
    "token", ["", ".", "..", "...", "a.b.c", "é.é.é", "\0", "a" * 8192, "." * 8000, "e30.e30.", "W10.W10.W10"]
)
def test_what_is_no_token_is_refused(trust: TokenVerifier, token: str) -> None:
    with pytest.raises(Unauthorized):
        trust.verify(token)


def test_a_head_nested_too_deeply_is_refused(trust: TokenVerifier) -> None:
    assert refused(trust, raw(b"[" * 3000 + b"]" * 3000, b"{}"))
    assert refused(trust, raw(b'{"alg":' + b"[" * 3000 + b"]" * 3000 + b"}", b"{}"))


# the files


def test_new_keys_are_taken_and_those_that_went_are_trusted_no_more(files: Files, trust: TokenVerifier) -> None:
    token, before = signed(rsa_key(), "r1"), trust.marks
    assert trust.verify(token).name == "jwt:ann"
    assert not trust.reload_if_changed()
    files.publish(jwk(rsa_key("next"), "r2"))
    assert trust.reload_if_changed()
    assert refused(trust, token)
    assert trust.verify(signed(rsa_key("next"), "r2")).name == "jwt:ann"
    assert before != trust.marks


def test_a_file_that_cannot_be_used_leaves_those_before(files: Files, trust: TokenVerifier) -> None:
    files.jwks.write_text("{")
    assert not trust.reload_if_changed()
    assert trust.verify(signed(rsa_key(), "r1")).name == "jwt:ann"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([{"kty": "oct", "k": "AAAA"}], "only RSA"),
        ([{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}], "only RSA"),
        ([{}], "only RSA"),
        ([{"kty": "RSA", "n": "AAAA"}], "cannot be read"),
        ([{"kty": "RSA", "n": 7, "e": []}], "cannot be read"),
        ([jwk(rsa_key(), "a", alg="HS256")], "only RSA"),
        ([jwk(rsa_key(), "a", d="AAAA")], "private"),
        ([jwk(rsa_key("weak", 1024), "a")], "2048 bits"),
        ([jwk(rsa_key(), "a"), jwk(ec_key(), "a")], "same kid"),
        ([], "1 to"),
        ([jwk(ec_key(), "a")] * 101, "1 to"),
    ],
)
def test_keys_that_cannot_be_trusted_are_refused_at_the_start(files: Files, keys: list[Any], said: str) -> None:
    files.publish(*keys)
    with pytest.raises(InvalidRequest, match=said):
        trusting(files)


def test_a_short_secret_is_refused_and_not_repeated(files: Files) -> None:
    files.secret.write_text("brief")
    with pytest.raises(InvalidRequest, match="at least 32 bytes") as caught:
        trusting(files)
    assert "brief" not in caught.value.message


def test_files_that_are_not_there_or_too_large_are_refused(files: Files) -> None:
    files.jwks.write_bytes(b"x" * 300_000)
    with pytest.raises(InvalidRequest, match="no file of keys"):
        trusting(files)
    files.jwks.unlink()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        trusting(files)
