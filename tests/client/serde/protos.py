"""Classes as protoc generates them, built at import."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto

MONEY = {
    "name": "shop/money.proto",
    "package": "shop",
    "syntax": "proto3",
    "message_type": [
        {
            "name": "Money",
            "field": [
                {"name": "units", "number": 1, "type": _FIELD.TYPE_INT64, "label": _FIELD.LABEL_OPTIONAL},
                {"name": "currency", "number": 2, "type": _FIELD.TYPE_STRING, "label": _FIELD.LABEL_OPTIONAL},
            ],
        }
    ],
}
ORDER = {
    "name": "shop/order.proto",
    "package": "shop",
    "syntax": "proto3",
    "dependency": ["shop/money.proto", "google/protobuf/timestamp.proto"],
    "message_type": [
        {
            "name": "Item",
            "field": [{"name": "sku", "number": 1, "type": _FIELD.TYPE_STRING, "label": _FIELD.LABEL_OPTIONAL}],
        },
        {
            "name": "Order",
            "field": [
                {"name": "id", "number": 1, "type": _FIELD.TYPE_INT64, "label": _FIELD.LABEL_OPTIONAL},
                {
                    "name": "items",
                    "number": 2,
                    "type": _FIELD.TYPE_MESSAGE,
                    "type_name": ".shop.Item",
                    "label": _FIELD.LABEL_REPEATED,
                },
                {
                    "name": "price",
                    "number": 3,
                    "type": _FIELD.TYPE_MESSAGE,
                    "type_name": ".shop.Money",
                    "label": _FIELD.LABEL_OPTIONAL,
                },
                {
                    "name": "at",
                    "number": 4,
                    "type": _FIELD.TYPE_MESSAGE,
                    "type_name": ".google.protobuf.Timestamp",
                    "label": _FIELD.LABEL_OPTIONAL,
                },
            ],
            "nested_type": [
                {
                    "name": "Note",
                    "field": [
                        {"name": "text", "number": 1, "type": _FIELD.TYPE_STRING, "label": _FIELD.LABEL_OPTIONAL}
                    ],
                }
            ],
        },
    ],
}


def _generated() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (MONEY, ORDER):
        pool.Add(descriptor_pb2.FileDescriptorProto(**file))
    names = ("Money", "Item", "Order", "Order.Note")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names}


_CLASSES = _generated()
Money, Item, Order, Note = (_CLASSES[name] for name in ("Money", "Item", "Order", "Order.Note"))
