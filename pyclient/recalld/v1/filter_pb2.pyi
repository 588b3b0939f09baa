from recalld.v1 import item_pb2 as _item_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ComparisonOperator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPARISON_OPERATOR_UNSPECIFIED: _ClassVar[ComparisonOperator]
    COMPARISON_OPERATOR_EQUAL: _ClassVar[ComparisonOperator]
    COMPARISON_OPERATOR_NOT_EQUAL: _ClassVar[ComparisonOperator]
    COMPARISON_OPERATOR_LESS: _ClassVar[ComparisonOperator]
    COMPARISON_OPERATOR_LESS_OR_EQUAL: _ClassVar[ComparisonOperator]
    COMPARISON_OPERATOR_GREATER: _ClassVar[ComparisonOperator]
    COMPARISON_OPERATOR_GREATER_OR_EQUAL: _ClassVar[ComparisonOperator]
COMPARISON_OPERATOR_UNSPECIFIED: ComparisonOperator
COMPARISON_OPERATOR_EQUAL: ComparisonOperator
COMPARISON_OPERATOR_NOT_EQUAL: ComparisonOperator
COMPARISON_OPERATOR_LESS: ComparisonOperator
COMPARISON_OPERATOR_LESS_OR_EQUAL: ComparisonOperator
COMPARISON_OPERATOR_GREATER: ComparisonOperator
COMPARISON_OPERATOR_GREATER_OR_EQUAL: ComparisonOperator

class Filter(_message.Message):
    __slots__ = ("all", "any", "compare", "exists", "contains")
    ALL_FIELD_NUMBER: _ClassVar[int]
    ANY_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    IN_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    all: FilterList
    any: FilterList
    compare: Comparison
    exists: str
    contains: Comparison
    def __init__(self, all: _Optional[_Union[FilterList, _Mapping]] = ..., any: _Optional[_Union[FilterList, _Mapping]] = ..., compare: _Optional[_Union[Comparison, _Mapping]] = ..., exists: _Optional[str] = ..., contains: _Optional[_Union[Comparison, _Mapping]] = ..., **kwargs) -> None: ...

class FilterList(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[Filter]
    def __init__(self, filters: _Optional[_Iterable[_Union[Filter, _Mapping]]] = ...) -> None: ...

class Comparison(_message.Message):
    __slots__ = ("field", "operator", "value")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    field: str
    operator: ComparisonOperator
    value: _item_pb2.Value
    def __init__(self, field: _Optional[str] = ..., operator: _Optional[_Union[ComparisonOperator, str]] = ..., value: _Optional[_Union[_item_pb2.Value, _Mapping]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("field", "values")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    field: str
    values: _containers.RepeatedCompositeFieldContainer[_item_pb2.Value]
    def __init__(self, field: _Optional[str] = ..., values: _Optional[_Iterable[_Union[_item_pb2.Value, _Mapping]]] = ...) -> None: ...
