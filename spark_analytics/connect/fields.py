"""The fields of Spark Connect's messages that a client may fill in; what is not listed here is refused.

One line a message, by its name in ``spark/connect/*.proto``. A field that a later Spark adds is refused until somebody
has looked at what it makes the server do; so is every ``extension``, which may hold any message at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_CALL = "session_id user_context client_type client_observed_server_side_session_id"

_REQUESTS = f"""
ExecutePlanRequest: {_CALL} operation_id plan request_options tags
AnalyzePlanRequest: {_CALL} schema explain tree_string is_local is_streaming spark_version ddl_parse json_to_ddl
AnalyzePlanRequest: same_semantics semantic_hash get_storage_level
ConfigRequest: {_CALL} operation
AddArtifactsRequest: {_CALL} batch begin_chunk chunk
ArtifactStatusesRequest: {_CALL} names
ReattachExecuteRequest: {_CALL} operation_id last_response_id
ReleaseExecuteRequest: {_CALL} operation_id release_all release_until
ReleaseSessionRequest: session_id user_context client_type allow_reconnect
FetchErrorDetailsRequest: {_CALL} error_id
InterruptRequest: {_CALL} interrupt_type operation_tag operation_id
CloneSessionRequest: {_CALL} new_session_id
GetStatusRequest: {_CALL} operation_status
UserContext: user_id user_name
ExecutePlanRequest.RequestOption: reattach_options result_chunking_options
ReattachOptions: reattachable
ResultChunkingOptions: allow_arrow_batch_chunking preferred_arrow_chunk_size
Plan: root command
Command: sql_command
SqlCommand: sql input
AnalyzePlanRequest.Schema: plan
AnalyzePlanRequest.Explain: plan explain_mode
AnalyzePlanRequest.TreeString: plan level
AnalyzePlanRequest.IsLocal: plan
AnalyzePlanRequest.IsStreaming: plan
AnalyzePlanRequest.SparkVersion:
AnalyzePlanRequest.DDLParse: ddl_string
AnalyzePlanRequest.JsonToDDL: json_string
AnalyzePlanRequest.SameSemantics: target_plan other_plan
AnalyzePlanRequest.SemanticHash: plan
AnalyzePlanRequest.GetStorageLevel: relation
ConfigRequest.Operation: set get get_with_default get_option get_all unset is_modifiable
ConfigRequest.Set: pairs silent
ConfigRequest.Get: keys
ConfigRequest.GetWithDefault: pairs
ConfigRequest.GetOption: keys
ConfigRequest.GetAll: prefix
ConfigRequest.Unset: keys
ConfigRequest.IsModifiable: keys
KeyValue: key value
AddArtifactsRequest.Batch: artifacts
AddArtifactsRequest.SingleChunkArtifact: name data
AddArtifactsRequest.BeginChunkedArtifact: name total_bytes num_chunks initial_chunk
AddArtifactsRequest.ArtifactChunk: data crc
ReleaseExecuteRequest.ReleaseAll:
ReleaseExecuteRequest.ReleaseUntil: response_id
GetStatusRequest.OperationStatusRequest: operation_ids
"""

_RELATIONS = """
Relation: common read project filter join set_op sort limit aggregate sql local_relation sample offset deduplicate range
Relation: subquery_alias repartition to_df with_columns_renamed show_string drop tail with_columns hint unpivot
Relation: to_schema repartition_by_expression collect_metrics html_string as_of_join with_relations transpose
Relation: lateral_join fill_na drop_na replace summary crosstab describe cov corr approx_quantile freq_items sample_by
Relation: catalog chunked_cached_local_relation
RelationCommon: source_info plan_id origin
Origin: python_origin
PythonOrigin: fragment call_site
Read: named_table
Read.NamedTable: unparsed_identifier
SQL: query named_arguments
WithRelations: root references
SubqueryAlias: input alias
Project: input expressions
Filter: input condition
Join: left right join_condition join_type using_columns join_data_type
Join.JoinDataType: is_left_struct is_right_struct
SetOperation: left_input right_input set_op_type is_all by_name allow_missing_columns
Sort: input order is_global
Limit: input limit
Offset: input offset
Tail: input limit
Aggregate: input group_type grouping_expressions aggregate_expressions pivot grouping_sets
Aggregate.Pivot: col values
Aggregate.GroupingSets: grouping_set
LocalRelation: data schema
ChunkedCachedLocalRelation: dataHashes schemaHash
Sample: input lower_bound upper_bound with_replacement seed deterministic_order
Deduplicate: input column_names all_columns_as_keys
Range: start end step num_partitions
Repartition: input num_partitions shuffle
RepartitionByExpression: input partition_exprs num_partitions
ToDF: input column_names
WithColumnsRenamed: input rename_columns_map renames
WithColumnsRenamed.Rename: col_name new_col_name
WithColumns: input aliases
ShowString: input num_rows truncate vertical
HtmlString: input num_rows truncate
Drop: input columns column_names
Hint: input name parameters
Unpivot: input ids values variable_column_name value_column_name
Unpivot.Values: values
ToSchema: input schema
CollectMetrics: input name metrics
AsOfJoin: left right left_as_of right_as_of join_expr using_columns join_type tolerance allow_exact_matches direction
LateralJoin: left right join_condition join_type
Transpose: input index_columns
NAFill: input cols values
NADrop: input cols min_non_nulls
NAReplace: input cols replacements
NAReplace.Replacement: old_value new_value
StatSummary: input statistics
StatCrosstab: input col1 col2
StatDescribe: input cols
StatCov: input col1 col2
StatCorr: input col1 col2 method
StatApproxQuantile: input cols probabilities relative_error
StatFreqItems: input cols support
StatSampleBy: input col fractions seed
StatSampleBy.Fraction: stratum fraction
Catalog: current_database list_databases list_tables list_functions list_columns get_database get_table get_function
Catalog: database_exists table_exists function_exists is_cached current_catalog list_catalogs list_views
CurrentDatabase:
CurrentCatalog:
ListDatabases: pattern
ListCatalogs: pattern
ListTables: db_name pattern
ListViews: db_name pattern
ListFunctions: db_name pattern
ListColumns: table_name db_name
GetDatabase: db_name
GetTable: table_name db_name
GetFunction: function_name db_name
DatabaseExists: db_name
TableExists: table_name db_name
FunctionExists: function_name db_name
IsCached: table_name
"""

_EXPRESSIONS = """
Expression: common literal unresolved_attribute unresolved_function expression_string unresolved_star alias cast
Expression: unresolved_regex sort_order lambda_function window unresolved_extract_value update_fields
Expression: unresolved_named_lambda_variable call_function named_argument_expression subquery_expression
ExpressionCommon: origin
Expression.Literal: null binary boolean byte short integer long float double decimal string date timestamp timestamp_ntz
Expression.Literal: calendar_interval year_month_interval day_time_interval array map struct specialized_array time
Expression.Literal: data_type
Expression.Literal.Decimal: value precision scale
Expression.Literal.CalendarInterval: months days microseconds
Expression.Literal.Array: element_type elements
Expression.Literal.Map: key_type value_type keys values
Expression.Literal.Struct: struct_type elements
Expression.Literal.SpecializedArray: bools ints longs floats doubles strings
Expression.Literal.Time: nano precision
Bools: values
Ints: values
Longs: values
Floats: values
Doubles: values
Strings: values
Expression.UnresolvedAttribute: unparsed_identifier plan_id is_metadata_column
Expression.UnresolvedFunction: function_name arguments is_distinct
Expression.ExpressionString: expression
Expression.UnresolvedStar: unparsed_target plan_id
Expression.UnresolvedRegex: col_name plan_id
Expression.Alias: expr name metadata
Expression.Cast: expr type type_str eval_mode
Expression.SortOrder: child direction null_ordering
Expression.LambdaFunction: function arguments
Expression.UnresolvedNamedLambdaVariable: name_parts
Expression.Window: window_function partition_spec order_spec frame_spec
Expression.Window.WindowFrame: frame_type lower upper
Expression.Window.WindowFrame.FrameBoundary: current_row unbounded value
Expression.UnresolvedExtractValue: child extraction
Expression.UpdateFields: struct_expression field_name value_expression
CallFunction: function_name arguments
NamedArgumentExpression: key value
SubqueryExpression: plan_id subquery_type in_subquery_values
DataType: null binary boolean byte short integer long float double decimal string char var_char date timestamp
DataType: timestamp_ntz calendar_interval year_month_interval day_time_interval array struct map variant unparsed time
DataType.NULL: type_variation_reference
DataType.Binary: type_variation_reference
DataType.Boolean: type_variation_reference
DataType.Byte: type_variation_reference
DataType.Short: type_variation_reference
DataType.Integer: type_variation_reference
DataType.Long: type_variation_reference
DataType.Float: type_variation_reference
DataType.Double: type_variation_reference
DataType.Decimal: scale precision type_variation_reference
DataType.String: type_variation_reference collation
DataType.Char: length type_variation_reference
DataType.VarChar: length type_variation_reference
DataType.Date: type_variation_reference
DataType.Timestamp: type_variation_reference
DataType.TimestampNTZ: type_variation_reference
DataType.CalendarInterval: type_variation_reference
DataType.YearMonthInterval: start_field end_field type_variation_reference
DataType.DayTimeInterval: start_field end_field type_variation_reference
DataType.Array: element_type contains_null type_variation_reference
DataType.Struct: fields type_variation_reference
DataType.StructField: name data_type nullable metadata
DataType.Map: key_type value_type value_contains_null type_variation_reference
DataType.Variant: type_variation_reference
DataType.Time: precision type_variation_reference
DataType.Unparsed: data_type_string
"""


def _read(text: str) -> dict[str, frozenset[str]]:
    fields: dict[str, frozenset[str]] = {}
    for line in filter(None, text.splitlines()):
        message, _, names = line.partition(":")
        fields[message] = fields.get(message, frozenset()) | frozenset(names.split())
    return fields


#: Message → its fields that may be filled in.
ALLOWED_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {f"spark.connect.{name}": fields for name, fields in _read(_REQUESTS + _RELATIONS + _EXPRESSIONS).items()}
)
