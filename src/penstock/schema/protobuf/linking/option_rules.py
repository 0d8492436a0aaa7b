"""Rules of protoc for interpreted options."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.elements import Element, ElementKind
from penstock.schema.protobuf.linking.checks import Rule, RuleContext
from penstock.schema.protobuf.parsing.cursor import Dialect
from penstock.schema.protobuf.parsing.fields import SCALARS

_Proto: Final = descriptor_pb2.FieldDescriptorProto
_Options: Final = descriptor_pb2.FieldOptions
_Features: Final = descriptor_pb2.FeatureSet
_MESSAGES: Final = (_Proto.TYPE_MESSAGE, _Proto.TYPE_GROUP)
_NOT_PACKED: Final = (*_MESSAGES, _Proto.TYPE_STRING, _Proto.TYPE_BYTES)
_LONG: Final = (
    *(_Proto.TYPE_INT64, _Proto.TYPE_UINT64, _Proto.TYPE_SINT64),
    *(_Proto.TYPE_FIXED64, _Proto.TYPE_SFIXED64),
)
_SCALARS: Final = {number: name for name, number in SCALARS.items()}
_TARGETS: Final = {
    ElementKind.FILE: _Options.TARGET_TYPE_FILE,
    ElementKind.MESSAGE: _Options.TARGET_TYPE_MESSAGE,
    ElementKind.FIELD: _Options.TARGET_TYPE_FIELD,
    ElementKind.EXTENSION: _Options.TARGET_TYPE_FIELD,
    ElementKind.ONEOF: _Options.TARGET_TYPE_ONEOF,
    ElementKind.ENUM: _Options.TARGET_TYPE_ENUM,
    ElementKind.VALUE: _Options.TARGET_TYPE_ENUM_ENTRY,
    ElementKind.SERVICE: _Options.TARGET_TYPE_SERVICE,
    ElementKind.METHOD: _Options.TARGET_TYPE_METHOD,
    ElementKind.RANGE: _Options.TARGET_TYPE_EXTENSION_RANGE,
}


def _has_features_of_its_edition(file: RuleContext, element: Element) -> str | None:
    features = _features(element)
    if features is None:
        return None
    if file.dialect is not Dialect.EDITIONS:
        return "there are features in editions only"
    for field, value in features.ListFields():
        options = field.GetOptions()
        if _TARGETS[element.sort] not in options.targets:
            return f'the feature "{field.name}" cannot stand on this'
        if options.feature_support.edition_introduced > file.linked.file.edition:
            return f'the feature "{field.name}" is of a later edition'
        if value == 0:
            return f'the feature "{field.name}" has to have a known value'
    return None


def _features(element: Element) -> Any:
    descriptor = element.descriptor
    if not descriptor.HasField("options") or not descriptor.options.HasField("features"):
        return None
    return descriptor.options.features


# Messages and enums


def _is_a_sound_message_set(file: RuleContext, element: Element) -> str | None:
    message = element.descriptor
    if not message.options.message_set_wire_format:
        return None
    if file.dialect is Dialect.PROTO3:
        return "there are no message sets in proto3"
    return "a message set has no fields, only extensions" if message.field else None


def _has_aliases_if_it_says_so(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    enum = element.descriptor
    numbers = [value.number for value in enum.value]
    shared = len(set(numbers)) < len(numbers)
    if not enum.options.HasField("allow_alias"):
        return "two values have a number in common, which only 'option allow_alias = true' permits" if shared else None
    if not enum.options.allow_alias:
        return "'allow_alias = false' has no effect, and is refused for that"
    return None if shared else "it allows aliases and has none"


# Fields


def _is_packed_if_it_can_be(file: RuleContext, element: Element) -> str | None:
    field = element.descriptor
    if not field.options.HasField("packed"):
        return None
    if file.dialect is Dialect.EDITIONS:
        return "editions say features.repeated_field_encoding instead of 'packed'"
    if field.options.packed and (field.label != _Proto.LABEL_REPEATED or field.type in _NOT_PACKED):
        return "only repeated numbers can be packed"
    return None


def _has_options_of_its_type(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    field = element.descriptor
    if field.options.jstype != _Options.JS_NORMAL and field.type not in _LONG:
        return "'jstype' is for integers of 64 bits"
    if (field.options.lazy or field.options.unverified_lazy) and field.type not in _MESSAGES:
        return "'lazy' is for messages"
    return None


def _may_say_its_presence(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    field, features = element.descriptor, _features(element)
    if features is None or not features.HasField("field_presence"):
        return None
    if field.label == _Proto.LABEL_REPEATED or field.HasField("oneof_index"):
        return "a field that is repeated or in a oneof does not say its presence"
    if element.sort is ElementKind.EXTENSION and features.field_presence != _Features.LEGACY_REQUIRED:
        return "an extension does not say its presence"
    if field.type in _MESSAGES and features.field_presence == _Features.IMPLICIT:
        return "the presence of a message is never implicit"
    return None


def _may_say_its_encoding(file: RuleContext, element: Element) -> str | None:
    field, features = element.descriptor, _features(element)
    if features is None:
        return None
    if features.HasField("message_encoding") and (field.type not in _MESSAGES or _is_map(file, field)):
        return "'message_encoding' is for messages"
    if features.HasField("utf8_validation") and not _has_text(file, field):
        return "'utf8_validation' is for strings"
    if features.HasField("repeated_field_encoding"):
        if field.label != _Proto.LABEL_REPEATED:
            return "'repeated_field_encoding' is for repeated fields"
        if field.type in _NOT_PACKED and features.repeated_field_encoding == _Features.PACKED:
            return "only repeated numbers can be packed"
    return None


def _is_as_declared(file: RuleContext, element: Element) -> str | None:
    """Check an extension against its declaration: a message may declare its extensions."""
    extension = element.descriptor
    strict, known = file.declared(file.find(extension.extendee))
    if extension.number not in strict:
        return None
    declaration = known.get(extension.number)
    if declaration is None or declaration.reserved:
        return f"the message it extends declares no extension with the number {extension.number}"
    kind = extension.type_name or _SCALARS[extension.type]
    declared = declaration.full_name, declaration.type, declaration.repeated
    if declared != (f".{element.name}", kind, extension.label == _Proto.LABEL_REPEATED):
        return "the message it extends declares it otherwise"
    return None


def _is_map(file: RuleContext, field: Any) -> bool:
    return field.type == _Proto.TYPE_MESSAGE and bool(file.find(field.type_name).descriptor.options.map_entry)


def _has_text(file: RuleContext, field: Any) -> bool:
    if field.type == _Proto.TYPE_STRING:
        return True
    return _is_map(file, field) and any(
        entry_field.type == _Proto.TYPE_STRING for entry_field in file.find(field.type_name).descriptor.field
    )


def _is_not_of_a_map(rule: Rule) -> Rule:
    """Return the rule without its effect on keys and values of maps. They have the map's features, even those that make
    no sense for them."""

    def checked(file: RuleContext, element: Element) -> str | None:
        return None if element.sort is ElementKind.FIELD and element.parent.options.map_entry else rule(file, element)

    return checked


_OF_FIELDS: Final = (
    _has_features_of_its_edition,
    _is_packed_if_it_can_be,
    _has_options_of_its_type,
    _is_not_of_a_map(_may_say_its_presence),
    _is_not_of_a_map(_may_say_its_encoding),
)
OPTIONS: Final[dict[ElementKind, tuple[Rule, ...]]] = {
    ElementKind.FILE: (_has_features_of_its_edition,),
    ElementKind.MESSAGE: (_has_features_of_its_edition, _is_a_sound_message_set),
    ElementKind.FIELD: _OF_FIELDS,
    ElementKind.EXTENSION: (*_OF_FIELDS, _is_as_declared),
    ElementKind.ONEOF: (_has_features_of_its_edition,),
    ElementKind.ENUM: (_has_features_of_its_edition, _has_aliases_if_it_says_so),
    ElementKind.VALUE: (_has_features_of_its_edition,),
    ElementKind.SERVICE: (_has_features_of_its_edition,),
    ElementKind.METHOD: (_has_features_of_its_edition,),
    ElementKind.RANGE: (_has_features_of_its_edition,),
}
