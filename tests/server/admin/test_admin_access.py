"""Access to the admin API: permissions are checked for every request, and lists contain what the client may see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.admin.kit import Admin, admin_of, wrong
from tests.server.http_kit import Answer

pytestmark = pytest.mark.slow  # a real broker

SHOP, LAB = "/topics/%2Fshop%2Forders", "/topics/%2Flab%2Forders"
_KEYS: dict[str, str] = {}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """Two namespaces, a client that may look at one of them, and one that may manage it."""
    data = tmp_path_factory.mktemp("access") / "data"
    command = [sys.executable, "-m", "penstock", "key", "create", "root", "--role", "admin", "--data", str(data)]
    _KEYS["root"] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with admin_of("--auth", "on", data=data) as found:
        for namespace in ("shop", "lab"):
            as_(found, "root", "POST", "/topics", {"topic": f"/{namespace}/orders"})
            as_(found, "root", "POST", f"/topics/%2F{namespace}%2Forders/messages", {"payload": namespace})
            body = {"subscription": "s", "from": "earliest"}
            as_(found, "root", "POST", f"/topics/%2F{namespace}%2Forders/subscriptions", body)
        for name, binding in (("reader", "consumer@namespace:shop"), ("operator", "operator@namespace:shop")):
            made = as_(found, "root", "POST", "/keys", {"name": name, "bindings": [binding]})
            _KEYS[name] = made.json["key"]
        yield found


def as_(admin: Admin, who: str, method: str, path: str, body: Any = None) -> Answer:
    return admin.http.ask(method, f"/v1{path}", body, Authorization=f"Bearer {_KEYS[who]}")


@pytest.mark.parametrize("who", ["reader", "operator"])
def test_lists_show_what_one_may_see(admin: Admin, who: str) -> None:
    topics = as_(admin, who, "GET", "/topics").json["topics"]
    assert [each["topic"] for each in topics] == ["/shop/orders"]
    assert [each["namespace"] for each in as_(admin, who, "GET", "/namespaces").json["namespaces"]] == ["shop"]
    found = as_(admin, who, "GET", "/subscriptions").json["subscriptions"]
    assert [each["topic"] for each in found] == ["/shop/orders"]
    assert len(as_(admin, "root", "GET", "/subscriptions").json["subscriptions"]) == 2


def test_messages_of_another_namespace_are_not_shown(admin: Admin) -> None:
    token = as_(admin, "reader", "GET", f"{SHOP}/messages").json["resume"]
    assert as_(admin, "reader", "GET", f"{SHOP}/messages/0").json["payload"] == "shop"
    for path in (
        "/messages",
        "/messages/0",
        "/messages/0/payload",
        f"/messages?resume={token}",
        "",
        "/subscriptions/s",
    ):
        wrong(as_(admin, "reader", "GET", f"{LAB}{path}"), 403, "FORBIDDEN")


def test_who_may_look_may_not_change(admin: Admin) -> None:
    changes: list[tuple[str, str, Any]] = [
        ("POST", f"{SHOP}/messages", {"payload": "x"}),
        ("PATCH", SHOP, {"rate_max": 1}),
        ("DELETE", SHOP, None),
        ("POST", f"{SHOP}/subscriptions/s/pause", None),
        ("POST", f"{SHOP}/dead-letters/redrive", {}),
        ("DELETE", f"{SHOP}/subscriptions/s", None),
        ("GET", "/connections", None),
        ("GET", "/keys", None),
        ("POST", "/topics", {"topic": "/shop/new"}),
        ("POST", "/access/grant", {"principal": "key:reader", "binding": "admin"}),
    ]
    for method, path, body in changes:
        wrong(as_(admin, "reader", method, path, body), 403, "FORBIDDEN")


def test_who_may_manage_may_do_so_there_and_nowhere_else(admin: Admin) -> None:
    assert as_(admin, "operator", "POST", f"{SHOP}/subscriptions/s/pause").status == 200
    assert as_(admin, "operator", "POST", f"{SHOP}/subscriptions/s/resume").status == 200
    assert as_(admin, "operator", "POST", "/topics", {"topic": "/shop/made"}).status == 201
    assert as_(admin, "operator", "DELETE", "/topics/%2Fshop%2Fmade").status == 200
    for path in (f"{LAB}/subscriptions/s/pause", f"{LAB}/dead-letters/drop"):
        wrong(as_(admin, "operator", "POST", path, {}), 403, "FORBIDDEN")
    wrong(as_(admin, "operator", "POST", "/topics", {"topic": "/lab/made"}), 403, "FORBIDDEN")
    wrong(as_(admin, "operator", "PUT", "/namespaces/lab", {}), 403, "FORBIDDEN")
