"""The messages of KEDA's external scaler, as its ``externalscaler.proto`` declares them: names, numbers, types."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"

_STRING = FieldDescriptorProto.TYPE_STRING
_BOOL, _INT, _DOUBLE = FieldDescriptorProto.TYPE_BOOL, FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_DOUBLE
#: Message → its fields by number; a type that is text is another message's name, repeated where it ends in ``*``.
_MESSAGES: dict[str, tuple[tuple[str, Any], ...]] = {
    "ScaledObjectRef": (
        ("name", _STRING),
        ("namespace", _STRING),
        ("scalerMetadata", "ScaledObjectRef.ScalerMetadataEntry*"),
    ),
    "IsActiveResponse": (("result", _BOOL),),
    "GetMetricSpecResponse": (("metricSpecs", "MetricSpec*"),),
    "MetricSpec": (("metricName", _STRING), ("targetSize", _INT), ("targetSizeFloat", _DOUBLE)),
    "GetMetricsRequest": (("scaledObjectRef", "ScaledObjectRef"), ("metricName", _STRING)),
    "GetMetricsResponse": (("metricValues", "MetricValue*"),),
    "MetricValue": (("metricName", _STRING), ("metricValue", _INT), ("metricValueFloat", _DOUBLE)),
}


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="externalscaler.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        _declare(file.message_type.add(name=name), fields)
    entry = file.message_type[0].nested_type.add(name="ScalerMetadataEntry")
    _declare(entry, (("key", _STRING), ("value", _STRING)))
    entry.options.map_entry = True
    return file


def _declare(message: DescriptorProto, fields: tuple[tuple[str, Any], ...]) -> None:
    for number, (name, kind) in enumerate(fields, 1):
        field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind.removesuffix('*')}"
            if kind.endswith("*"):
                field.label = FieldDescriptorProto.LABEL_REPEATED
        else:
            field.type = kind


_pool = DescriptorPool()  # of its own: an application may have the published one loaded
_pool.Add(_file())


def _class(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


ScaledObjectRef = _class("ScaledObjectRef")
IsActiveResponse = _class("IsActiveResponse")
GetMetricSpecResponse = _class("GetMetricSpecResponse")
GetMetricsRequest = _class("GetMetricsRequest")
GetMetricsResponse = _class("GetMetricsResponse")
