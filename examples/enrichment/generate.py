"""Customers and orders through a broker, with schemas.

    python generate.py --orders 2000

The schemas come from the classes: the producer registers them, and every message names the version it was written with.
A customer is sent again when something about them changes: the last message of a key is the customer as they are now.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import penstock

REGIONS: Final = ("north", "east", "south", "west")
CUSTOMERS: Final = 40


@dataclass(frozen=True, slots=True)
class Customer:
    customer: int
    name: str
    region: str


@dataclass(frozen=True, slots=True)
class Order:
    order: int
    customer: int
    cents: int


def customers() -> Iterator[Customer]:
    """Every customer, and then a third of them again, who have moved."""
    for number in range(CUSTOMERS):
        yield Customer(number, f"customer {number}", REGIONS[number % 4])
    for number in range(0, CUSTOMERS, 3):
        yield Customer(number, f"customer {number}", REGIONS[(number + 1) % 4])


def orders(first: int, count: int) -> Iterator[Order]:
    """Some of them are of customers that nobody knows."""
    for number in range(first, first + count):
        yield Order(number, number * 7919 % (CUSTOMERS + 2), 100 + number * 104_729 % 9900)


def send(url: str | None, first: int, count: int) -> None:
    with penstock.connect(url) as client:
        if first == 0:
            with client.producer("customers", schema=Customer) as producer:
                for customer in customers():
                    producer.send(customer, key=str(customer.customer), type="customer.changed")
        with client.producer("orders", schema=Order) as producer:
            for order in orders(first, count):
                producer.send(order, key=str(order.order), type="order.created")


def main() -> None:
    options = argparse.ArgumentParser(description="Customers and orders through a broker, with schemas.")
    options.add_argument("--url", default=None, help="the broker; default: PENSTOCK_URL, or tcp://127.0.0.1:7450")
    options.add_argument("--first", type=int, default=0, help="number of the first order; 0 also sends the customers")
    options.add_argument("--orders", type=int, default=2000, help="how many")
    given = options.parse_args()
    send(given.url, given.first, given.orders)
    print(f"{given.orders} orders sent")


if __name__ == "__main__":
    main()
