"""Access policy: every operation, role and scope against a table and a matcher written apart from the code."""

from __future__ import annotations

import re
import secrets
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.access.policy import (
    ANONYMOUS,
    NO_ORIGIN,
    SERVER,
    SYSTEM,
    AccessPolicy,
    AuditedAction,
    BadCredentials,
    Binding,
    Decision,
    Operation,
    Origin,
    Principal,
    Resource,
    ResourceKind,
    Scope,
    check_principal,
    digest_of,
    matches_digest,
    new_key,
    parse_key,
)
from penstock.broker.access.roles import ROLES, covers_subject, covers_topic
from penstock.core.errors import Forbidden, InvalidRequest, Unauthorized
from penstock.core.names import TopicName, TopicPattern
from penstock.storage.catalog.access import AccessRows, StoredBinding, StoredKey

# the oracle: what the documentation promises, as a plain table

MAY = """
              viewer publisher consumer responder registrar operator admin
topic.publish        -      x         -        -         -         -        x
topic.consume        -      -         x        -         -         -        x
topic.browse         -      -         x        -         -         x        x
topic.describe       x      x         x        x         -         x        x
topic.create         -      -         -        -         -         x        x
topic.alter          -      -         -        -         -         x        x
topic.delete         -      -         -        -         -         x        x
subscription.manage  -      -         -        -         -         x        x
service.request      -      x         -        -         -         -        x
service.respond      -      -         -        x         -         -        x
schema.read          x      x         x        x         x         x        x
schema.write         -      -         -        -         x         x        x
schema.delete        -      -         -        -         x         x        x
server.view          x      -         -        -         -         x        x
server.manage        -      -         -        -         -         -        x
server.connect       x      x         x        x         x         x        x
public               x      x         x        x         x         x        x
"""
_HEAD, *_ROWS = [line.split() for line in MAY.strip().splitlines()]
ORACLE = {(row[0], role): mark == "x" for row in _ROWS for role, mark in zip(_HEAD, row[1:], strict=True)}
ALWAYS = ("server.connect", "public")

SCOPES = {
    "server": r".*",
    "namespace:shop": r"(namespace shop|topic /shop/.*)",
    "topic:/shop/orders.#": r"topic /shop/orders\..+",
    "topic:/shop/+.created": r"topic /shop/[^.]+\.created",
    "topic:orders": r"topic /default/orders",
    "subject:orders-*": r"subject orders-.*",
    "subject:payments": r"subject payments",
}
"""Scopes with the resources each holds for, as a regular expression."""

RESOURCES = {
    "server ": SERVER,
    "namespace shop": Resource.namespace("Shop"),
    "namespace default": Resource.namespace("default"),
    "topic /shop/orders.created": Resource.topic(TopicName.parse("/shop/orders.created")),
    "topic /shop/orders": Resource.topic(TopicName.parse("/shop/orders")),
    "topic /shop-dlq/orders.created": Resource.topic(TopicName.parse("/shop-dlq/orders.created")),
    "topic /default/orders": Resource.topic(TopicName.parse("Orders")),
    "subject orders-value": Resource.subject("orders-value"),
    "subject payments": Resource.subject("payments"),
    "subject Payments": Resource.subject("Payments"),
}


def granted(*bindings: str, name: str = "jwt:ann") -> Principal:
    return Principal(name=name, bindings=tuple(Binding.parse(each) for each in bindings))


@pytest.fixture
def access() -> AccessPolicy:
    return AccessPolicy(enabled=True)


def test_the_oracle_knows_every_operation_and_every_role() -> None:
    assert {operation for operation, _ in ORACLE} == set(Operation)
    assert {role for _, role in ORACLE} == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_within_a_scope_is_what_the_table_says(access: AccessPolicy, role: str) -> None:
    for (scope, holds), operation, (described, resource) in product(SCOPES.items(), Operation, RESOURCES.items()):
        expected = operation.value in ALWAYS or (
            ORACLE[operation.value, role] and re.fullmatch(holds, described) is not None
        )
        found = access.allows(granted(f"{role}@{scope}"), operation, resource)
        assert found is expected, (role, scope, operation, described)


def test_whoever_is_known_and_has_no_role_may_only_be_there(access: AccessPolicy) -> None:
    for operation, resource in product(Operation, RESOURCES.values()):
        assert access.allows(granted(), operation, resource) is (operation.value in ALWAYS)


def test_nobody_may_only_what_is_public(access: AccessPolicy) -> None:
    for operation, resource in product(Operation, RESOURCES.values()):
        assert access.allows(ANONYMOUS, operation, resource) is (operation is Operation.PUBLIC)


def test_without_authentication_everybody_may_everything() -> None:
    off = AccessPolicy()
    assert all(off.allows(ANONYMOUS, each, SERVER) for each in Operation)


def test_two_bindings_together_allow_what_either_allows(access: AccessPolicy) -> None:
    both = granted("publisher@topic:a.#", "consumer@topic:b.#")
    for topic, operation in product(("a.x", "b.x"), (Operation.PUBLISH, Operation.CONSUME)):
        expected = (topic, operation) in {("a.x", Operation.PUBLISH), ("b.x", Operation.CONSUME)}
        assert access.allows(both, operation, Resource.topic(TopicName.parse(topic))) is expected


# patterns

_LEVELS = st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=3)
_PATTERNS = st.builds(lambda levels, rest: ".".join([*levels, *rest]), _LEVELS, st.sampled_from([[], ["#"]]))
_UNIVERSE = [TopicName("n", ".".join(levels)) for count in range(1, 6) for levels in product("abz", repeat=count)]
"""A level that is in no pattern stands for all others."""


@given(_PATTERNS, _PATTERNS)
def test_a_pattern_is_allowed_where_every_topic_it_may_match_is(scope: str, asked: str) -> None:
    mine, theirs = TopicPattern("n", scope), TopicPattern("n", asked)
    expected = all(mine.matches(each) for each in _UNIVERSE if theirs.matches(each))
    assert covers_topic(str(mine), str(theirs)) is expected


def test_a_pattern_never_reaches_into_another_namespace() -> None:
    assert not covers_topic("/shop/#", "/shopping/orders")
    assert not covers_topic("/shop/#", "/shop-dlq/#")
    assert covers_topic("/shop/#", "/shop/#")


@given(st.text("ab*", min_size=1, max_size=6), st.text("ab*", max_size=8))
def test_a_subject_pattern_matches_what_a_regular_expression_matches(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    assert covers_subject(pattern, name) is expected


# what is written


NO_BINDINGS = ["", "king", "admin@", "admin@everything", "admin@server:x", "viewer@topic:", "viewer@topic:a..b"]
NO_BINDINGS += ["viewer@topic:#.a", "viewer@namespace:a/b", "viewer@subject:", "viewer@subject:a\nb", "@server"]
NO_BINDINGS += ["viewer@topic:" + "a" * 600, "VIEWER", "viewer@Topic:a", "viewer@topic:/a", "viewer@topic:é"]
NO_BINDINGS += ["viewer@@server"]


@pytest.mark.parametrize("text", NO_BINDINGS)
def test_what_is_no_binding_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Binding.parse(text)
    assert refused.value.details["field"] in ("role", "scope")


@pytest.mark.parametrize(
    "text", ["admin@server", "viewer@namespace:shop", "publisher@topic:/shop/+.#", "registrar@subject:a*"]
)
def test_a_binding_is_written_as_it_was_read(text: str) -> None:
    assert str(Binding.parse(text)) == text


def test_a_role_alone_holds_everywhere_and_a_bare_topic_is_of_the_default_namespace() -> None:
    assert str(Binding.parse("admin")) == "admin@server"
    assert str(Scope.parse("topic:Orders.#")) == "topic:/default/orders.#"


@pytest.mark.parametrize(
    "name", ["", "ann", "key:", "root:x", "key:a b", "jwt:a\n", "system", "anonymous", "jwt:" + "x" * 129]
)
def test_what_names_nobody_is_no_principal(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_principal(name)


# keys


def random_bytes(count: int) -> bytes:
    return bytes(range(count))


def rows(*keys: StoredKey, bindings: tuple[StoredBinding, ...] = (), revision: int = 1) -> AccessRows:
    return AccessRows(revision, keys, bindings)


def stored(**more: int) -> tuple[str, StoredKey]:
    made = new_key(random_bytes)
    return made.text, StoredKey(key_id=made.key_id, name="ann", digest=made.digest, created_ms=1, **more)


def test_a_key_opens_with_its_secret_and_no_other(access: AccessPolicy) -> None:
    text, key = stored()
    access.load(rows(key))
    assert access.authenticate(text).name == "key:ann"
    for wrong in (
        text[:-1] + ("a" if text[-1] != "a" else "b"),
        text[:-1],
        text + "a",
        text.upper(),
        "psk_",
        "psk__",
        text[:20],
    ):
        with pytest.raises(BadCredentials) as refused:
            access.authenticate(wrong)
        assert text[-20:] not in refused.value.message


def test_what_is_kept_of_a_key_is_not_its_secret() -> None:
    text, key = stored()
    given_ = parse_key(text)
    assert given_ is not None
    assert given_.secret not in repr(key)
    assert matches_digest(given_.secret, key.digest)
    assert not matches_digest(given_.secret, digest_of("a" * 52))


def test_two_keys_are_never_alike() -> None:
    made = [new_key(secrets.token_bytes) for _ in range(100)]
    assert len({each.text for each in made}) == len({each.key_id for each in made}) == 100


@pytest.mark.parametrize("more", [{"revoked_ms": 5}, {"expires_ms": 5}])
def test_a_key_that_was_revoked_or_has_expired_opens_nothing(access: AccessPolicy, more: dict[str, int]) -> None:
    text, key = stored(**more)
    access.now_ms = 5
    access.load(rows(key))
    with pytest.raises(BadCredentials, match=r"revoked|expired"):
        access.authenticate(text)


def test_what_was_decided_counts_until_something_changes(access: AccessPolicy) -> None:
    text, key = stored()
    binding = StoredBinding(principal="key:ann", role="admin", scope="server")
    access.load(rows(key, bindings=(binding,)))
    ann = access.authenticate(text)
    assert access.allows(ann, Operation.SERVER_MANAGE, SERVER)
    before = access.revision
    assert access.load(rows(key, revision=2))
    assert access.revision > before
    assert not access.allows(ann, Operation.SERVER_MANAGE, SERVER)
    assert access.allows(ann, Operation.CONNECT, SERVER)
    assert access.load(rows(revision=3))
    assert not access.allows(ann, Operation.CONNECT, SERVER)


def test_what_is_known_already_is_not_taken_for_news(access: AccessPolicy) -> None:
    told: list[int] = []
    stop = access.watch(lambda: told.append(access.revision))
    assert access.load(rows(revision=7))
    assert not access.load(rows(revision=7))
    assert not access.load(rows(revision=6))
    assert len(told) == 1
    stop()
    access.invalidate()
    assert len(told) == 1


def test_time_alone_ends_what_was_allowed(access: AccessPolicy) -> None:
    ann = Principal(name="jwt:ann", bindings=(Binding.parse("admin"),), expires_ms=100)
    access.now_ms = 99
    assert access.allows(ann, Operation.PUBLISH, SERVER)
    access.now_ms = 100
    assert not access.allows(ann, Operation.PUBLISH, SERVER)
    assert access.allows(ann, Operation.PUBLIC, SERVER)


def test_a_binding_that_is_not_understood_allows_nothing_and_spoils_nothing(access: AccessPolicy) -> None:
    text, key = stored()
    odd = StoredBinding(principal="key:ann", role="emperor", scope="server")
    good = StoredBinding(principal="key:ann", role="viewer", scope="server")
    access.load(rows(key, bindings=(odd, good)))
    ann = access.authenticate(text)
    assert access.allows(ann, Operation.SERVER_VIEW, SERVER)
    assert not access.allows(ann, Operation.SERVER_MANAGE, SERVER)


# what is said, and what is written down


def test_who_is_refused_hears_what_would_help(access: AccessPolicy) -> None:
    with pytest.raises(Unauthorized, match="PENSTOCK_TOKEN"):
        access.check(ANONYMOUS, Operation.PUBLISH, SERVER)
    with pytest.raises(Forbidden, match=r"jwt:ann may not topic.publish on topic /default/a: .*publisher, admin"):
        access.check(granted(), Operation.PUBLISH, Resource.topic(TopicName.parse("a")))


def test_administration_and_refusals_are_noted_and_nothing_else(access: AccessPolicy) -> None:
    noted: list[Decision] = []
    access.audit = noted.append
    origin = Origin("tcp", "10.0.0.1:5")
    boss = granted("admin", name="jwt:boss")
    access.check(boss, Operation.PUBLISH, SERVER, origin)
    access.check(boss, Operation.CREATE, SERVER, origin)
    access.check(boss, Operation.CREATE, SERVER, NO_ORIGIN)
    access.check(SYSTEM, Operation.CREATE, SERVER)
    with pytest.raises(Forbidden):
        access.check(granted(), Operation.PUBLISH, SERVER, origin)
    with pytest.raises(BadCredentials):
        access.authenticate("psk_nonsense", origin)
    assert [(each.principal, each.operation, each.outcome) for each in noted] == [
        ("jwt:boss", "topic.create", "allowed"),
        ("jwt:ann", "topic.publish", "denied"),
        ("unknown", "authenticate", "refused"),
    ]
    assert all("nonsense" not in repr(each) for each in noted)


def test_what_was_asked_for_is_noted_and_of_what_was_denied_only_by_what(access: AccessPolicy) -> None:
    noted: list[Decision] = []
    access.audit = noted.append
    audited = AuditedAction("system.key.create", (("name", "shop"),))
    asked = (Operation.SERVER_MANAGE, SERVER, Origin("tcp", "10.0.0.1:5"), audited)
    access.check(granted("admin", name="jwt:boss"), *asked)
    with pytest.raises(Forbidden):
        access.check(granted(), *asked)
    assert [each.audited for each in noted] == [audited, AuditedAction("system.key.create")]


@pytest.mark.parametrize("written", ["payroll-value", ":.:payroll-value"])
def test_a_subject_is_the_same_however_it_is_written(access: AccessPolicy, written: str) -> None:
    clerk = granted("registrar@subject:*.*")
    assert not access.allows(clerk, Operation.SCHEMA_READ, Resource.subject(written))
    assert access.allows(granted("registrar@subject:payroll-*"), Operation.SCHEMA_DELETE, Resource.subject(written))


def test_more_decisions_than_are_remembered_are_still_right(access: AccessPolicy) -> None:
    ann = granted("publisher@topic:/n/a.#")
    for number in range(25_000):
        resource = Resource(ResourceKind.TOPIC, f"/n/{'a' if number % 2 else 'b'}.x{number}")
        assert access.allows(ann, Operation.PUBLISH, resource) is bool(number % 2)
