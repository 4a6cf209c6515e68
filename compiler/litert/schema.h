// SPDX-License-Identifier: Apache-2.0
// The schema of LiteRT's files: which field of which table has which number, type and default, and the numbers of
// enumerations. A struct stands for a table of the flatbuffer and holds no data; table.h reads its fields:
//     const int32_t stride = options[Conv2DOptions::stride_w];
// Names, numbers and defaults are those of the published schema, version 3 (tests/litert compares them with the schema
// of the package ai-edge-litert). Fields that were added later have the next free number, so that older files are read
// alike.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera::litert {

class Table;
template <typename T>
class Vector;

/// A field of a table: its number, and its value where a file leaves it out.
template <typename T>
struct Field {
  uint16_t number;
  T absent = {};
};
/// Fields that hold texts, tables and vectors are empty where a file leaves them out.
template <>
struct Field<Table> {
  uint16_t number;
};
template <typename T>
struct Field<Vector<T>> {
  uint16_t number;
};

// clang-format off

struct CustomQuantization {
  static constexpr Field<Vector<uint8_t>> custom{0};
};
struct BlockwiseQuantization {
  static constexpr Field<int32_t> scales{0};
  static constexpr Field<int32_t> zero_points{1};
  static constexpr Field<int32_t> block_size{2};
  static constexpr Field<Vector<int32_t>> block_shape{3};
};
struct MultiAxisQuantization {
  static constexpr Field<int32_t> scales{0};
  static constexpr Field<int32_t> zero_points{1};
  static constexpr Field<int32_t> block_size{2};
  static constexpr Field<Vector<int32_t>> quantized_dimensions{3};
};
struct QuantizationParameters {
  static constexpr Field<Vector<float>> min{0};
  static constexpr Field<Vector<float>> max{1};
  static constexpr Field<Vector<float>> scale{2};
  static constexpr Field<Vector<int64_t>> zero_point{3};
  static constexpr Field<uint8_t> details_type{4};
  static constexpr Field<Table> details{5};
  static constexpr Field<int32_t> quantized_dimension{6};
};
struct Int32Vector {
  static constexpr Field<Vector<int32_t>> values{0};
};
struct Uint16Vector {
  static constexpr Field<Vector<uint16_t>> values{0};
};
struct Uint8Vector {
  static constexpr Field<Vector<uint8_t>> values{0};
};
struct DimensionMetadata {
  static constexpr Field<int8_t> format{0};
  static constexpr Field<int32_t> dense_size{1};
  static constexpr Field<uint8_t> array_segments_type{2};
  static constexpr Field<Table> array_segments{3};
  static constexpr Field<uint8_t> array_indices_type{4};
  static constexpr Field<Table> array_indices{5};
};
struct SparsityParameters {
  static constexpr Field<Vector<int32_t>> traversal_order{0};
  static constexpr Field<Vector<int32_t>> block_map{1};
  static constexpr Field<Vector<Table>> dim_metadata{2};
};
struct VariantSubType {
  static constexpr Field<Vector<int32_t>> shape{0};
  static constexpr Field<int8_t> type{1};
  static constexpr Field<bool> has_rank{2};
};
struct TensorTable {
  static constexpr Field<Vector<int32_t>> shape{0};
  static constexpr Field<int8_t> type{1};
  static constexpr Field<uint32_t> buffer{2};
  static constexpr Field<std::string_view> name{3};
  static constexpr Field<Table> quantization{4};
  static constexpr Field<bool> is_variable{5};
  static constexpr Field<Table> sparsity{6};
  static constexpr Field<Vector<int32_t>> shape_signature{7};
  static constexpr Field<bool> has_rank{8};
  static constexpr Field<Vector<Table>> variant_tensors{9};
  static constexpr Field<uint32_t> external_buffer{10};
};
struct StablehloGatherOptions {
  static constexpr Field<Vector<int64_t>> offset_dims{0};
  static constexpr Field<Vector<int64_t>> collapsed_slice_dims{1};
  static constexpr Field<Vector<int64_t>> start_index_map{2};
  static constexpr Field<int64_t> index_vector_dim{3};
  static constexpr Field<Vector<int64_t>> slice_sizes{4};
  static constexpr Field<bool> indices_are_sorted{5};
};
struct StablehloTransposeOptions {
  static constexpr Field<Vector<int64_t>> permutation{0};
};
struct StablehloDotGeneralOptions {
  static constexpr Field<Vector<int64_t>> lhs_batching_dimensions{0};
  static constexpr Field<Vector<int64_t>> rhs_batching_dimensions{1};
  static constexpr Field<Vector<int64_t>> lhs_contracting_dimensions{2};
  static constexpr Field<Vector<int64_t>> rhs_contracting_dimensions{3};
  static constexpr Field<Vector<uint32_t>> precision_config{4};
};
struct StablehloReduceWindowOptions {
  static constexpr Field<Vector<int64_t>> window_dimensions{0};
  static constexpr Field<Vector<int64_t>> window_strides{1};
  static constexpr Field<Vector<int64_t>> base_dilations{2};
  static constexpr Field<Vector<int64_t>> window_dilations{3};
  static constexpr Field<Vector<int64_t>> padding{4};
  static constexpr Field<int32_t> body_subgraph_index{5};
};
struct StablehloWhileOptions {
  static constexpr Field<int32_t> cond_subgraph_index{0};
  static constexpr Field<int32_t> body_subgraph_index{1};
};
struct StablehloSortOptions {
  static constexpr Field<int64_t> dimension{0};
  static constexpr Field<bool> is_stable{1};
  static constexpr Field<int32_t> comparator_subgraph_index{2};
};
struct StablehloConcatenateOptions {
  static constexpr Field<int64_t> dimension{0};
};
struct StablehloBroadcastInDimOptions {
  static constexpr Field<Vector<int64_t>> broadcast_dimensions{0};
};
struct StablehloCompareOptions {
  static constexpr Field<uint32_t> comparison_direction{0};
  static constexpr Field<uint32_t> compare_type{1};
};
struct StablehloDynamicSliceOptions {
  static constexpr Field<Vector<int64_t>> slice_sizes{0};
};
struct StablehloPadOptions {
  static constexpr Field<Vector<int64_t>> edge_padding_low{0};
  static constexpr Field<Vector<int64_t>> edge_padding_high{1};
  static constexpr Field<Vector<int64_t>> interior_padding{2};
};
struct StablehloIotaOptions {
  static constexpr Field<int64_t> iota_dimension{0};
};
struct StablehloCustomCallOptions {
  static constexpr Field<std::string_view> call_target_name{0};
  static constexpr Field<bool> has_side_effect{1};
  static constexpr Field<std::string_view> backend_config{2};
  static constexpr Field<int32_t> api_version{3};
  static constexpr Field<Vector<int32_t>> called_computations{4};
  static constexpr Field<Vector<uint8_t>> custom_attributes{5};
};
struct StablehloReduceOptions {
  static constexpr Field<Vector<int64_t>> dimensions{0};
  static constexpr Field<int32_t> body_subgraph_index{1};
};
struct StablehloSliceOptions {
  static constexpr Field<Vector<int64_t>> start_indices{0};
  static constexpr Field<Vector<int64_t>> limit_indices{1};
  static constexpr Field<Vector<int64_t>> strides{2};
};
struct StablehloConvolutionOptions {
  static constexpr Field<Vector<int64_t>> window_strides{0};
  static constexpr Field<Vector<int64_t>> padding{1};
  static constexpr Field<Vector<int64_t>> lhs_dilation{2};
  static constexpr Field<Vector<int64_t>> rhs_dilation{3};
  static constexpr Field<Vector<bool>> window_reversal{4};
  static constexpr Field<int64_t> input_batch_dimension{5};
  static constexpr Field<int64_t> input_feature_dimension{6};
  static constexpr Field<Vector<int64_t>> input_spatial_dimensions{7};
  static constexpr Field<int64_t> kernel_input_feature_dimension{8};
  static constexpr Field<int64_t> kernel_output_feature_dimension{9};
  static constexpr Field<Vector<int64_t>> kernel_spatial_dimensions{10};
  static constexpr Field<int64_t> output_batch_dimension{11};
  static constexpr Field<int64_t> output_feature_dimension{12};
  static constexpr Field<Vector<int64_t>> output_spatial_dimensions{13};
  static constexpr Field<int64_t> feature_group_count{14};
  static constexpr Field<int64_t> batch_group_count{15};
  static constexpr Field<Vector<uint32_t>> precision_config{16};
};
struct StablehloScatterOptions {
  static constexpr Field<bool> indices_are_sorted{0};
  static constexpr Field<Vector<int64_t>> update_window_dims{1};
  static constexpr Field<Vector<int64_t>> inserted_window_dims{2};
  static constexpr Field<Vector<int64_t>> scatter_dims_to_operand_dims{3};
  static constexpr Field<int64_t> index_vector_dim{4};
  static constexpr Field<bool> unique_indices{5};
  static constexpr Field<int32_t> update_computation_subgraph_index{6};
};
struct StablehloCaseOptions {
  static constexpr Field<Vector<int32_t>> branch_subgraph_indices{0};
};
struct StablehloRngBitGeneratorOptions {
  static constexpr Field<int8_t> algorithm{0};
};
struct Conv2DOptions {
  static constexpr Field<int8_t> padding{0};
  static constexpr Field<int32_t> stride_w{1};
  static constexpr Field<int32_t> stride_h{2};
  static constexpr Field<int8_t> fused_activation_function{3};
  static constexpr Field<int32_t> dilation_w_factor{4, 1};
  static constexpr Field<int32_t> dilation_h_factor{5, 1};
  static constexpr Field<int8_t> quantized_bias_type{6};
};
struct Conv3DOptions {
  static constexpr Field<int8_t> padding{0};
  static constexpr Field<int32_t> stride_d{1};
  static constexpr Field<int32_t> stride_w{2};
  static constexpr Field<int32_t> stride_h{3};
  static constexpr Field<int8_t> fused_activation_function{4};
  static constexpr Field<int32_t> dilation_d_factor{5, 1};
  static constexpr Field<int32_t> dilation_w_factor{6, 1};
  static constexpr Field<int32_t> dilation_h_factor{7, 1};
};
struct Pool2DOptions {
  static constexpr Field<int8_t> padding{0};
  static constexpr Field<int32_t> stride_w{1};
  static constexpr Field<int32_t> stride_h{2};
  static constexpr Field<int32_t> filter_width{3};
  static constexpr Field<int32_t> filter_height{4};
  static constexpr Field<int8_t> fused_activation_function{5};
};
struct DepthwiseConv2DOptions {
  static constexpr Field<int8_t> padding{0};
  static constexpr Field<int32_t> stride_w{1};
  static constexpr Field<int32_t> stride_h{2};
  static constexpr Field<int32_t> depth_multiplier{3};
  static constexpr Field<int8_t> fused_activation_function{4};
  static constexpr Field<int32_t> dilation_w_factor{5, 1};
  static constexpr Field<int32_t> dilation_h_factor{6, 1};
};
struct LSHProjectionOptions {
  static constexpr Field<int8_t> type{0};
};
struct SVDFOptions {
  static constexpr Field<int32_t> rank{0};
  static constexpr Field<int8_t> fused_activation_function{1};
  static constexpr Field<bool> asymmetric_quantize_inputs{2};
};
struct RNNOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<bool> asymmetric_quantize_inputs{1};
};
struct SequenceRNNOptions {
  static constexpr Field<bool> time_major{0};
  static constexpr Field<int8_t> fused_activation_function{1};
  static constexpr Field<bool> asymmetric_quantize_inputs{2};
};
struct BidirectionalSequenceRNNOptions {
  static constexpr Field<bool> time_major{0};
  static constexpr Field<int8_t> fused_activation_function{1};
  static constexpr Field<bool> merge_outputs{2};
  static constexpr Field<bool> asymmetric_quantize_inputs{3};
};
struct FullyConnectedOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<int8_t> weights_format{1};
  static constexpr Field<bool> keep_num_dims{2};
  static constexpr Field<bool> asymmetric_quantize_inputs{3};
  static constexpr Field<int8_t> quantized_bias_type{4};
  static constexpr Field<Vector<uint8_t>> quant_spec{5};
};
struct SoftmaxOptions {
  static constexpr Field<float> beta{0};
};
struct ConcatenationOptions {
  static constexpr Field<int32_t> axis{0};
  static constexpr Field<int8_t> fused_activation_function{1};
};
struct AddOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<bool> pot_scale_int16{1, true};
};
struct MulOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
};
struct L2NormOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
};
struct LocalResponseNormalizationOptions {
  static constexpr Field<int32_t> radius{0};
  static constexpr Field<float> bias{1};
  static constexpr Field<float> alpha{2};
  static constexpr Field<float> beta{3};
};
struct LSTMOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<float> cell_clip{1};
  static constexpr Field<float> proj_clip{2};
  static constexpr Field<int8_t> kernel_type{3};
  static constexpr Field<bool> asymmetric_quantize_inputs{4};
};
struct UnidirectionalSequenceLSTMOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<float> cell_clip{1};
  static constexpr Field<float> proj_clip{2};
  static constexpr Field<bool> time_major{3};
  static constexpr Field<bool> asymmetric_quantize_inputs{4};
  static constexpr Field<bool> diagonal_recurrent_tensors{5};
};
struct BidirectionalSequenceLSTMOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<float> cell_clip{1};
  static constexpr Field<float> proj_clip{2};
  static constexpr Field<bool> merge_outputs{3};
  static constexpr Field<bool> time_major{4, true};
  static constexpr Field<bool> asymmetric_quantize_inputs{5};
};
struct ResizeBilinearOptions {
  static constexpr Field<bool> align_corners{2};
  static constexpr Field<bool> half_pixel_centers{3};
};
struct ResizeNearestNeighborOptions {
  static constexpr Field<bool> align_corners{0};
  static constexpr Field<bool> half_pixel_centers{1};
};
struct CallOptions {
  static constexpr Field<uint32_t> subgraph{0};
};
struct ReshapeOptions {
  static constexpr Field<Vector<int32_t>> new_shape{0};
};
struct SkipGramOptions {
  static constexpr Field<int32_t> ngram_size{0};
  static constexpr Field<int32_t> max_skip_size{1};
  static constexpr Field<bool> include_all_ngrams{2};
};
struct SpaceToDepthOptions {
  static constexpr Field<int32_t> block_size{0};
};
struct DepthToSpaceOptions {
  static constexpr Field<int32_t> block_size{0};
};
struct SubOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
  static constexpr Field<bool> pot_scale_int16{1, true};
};
struct DivOptions {
  static constexpr Field<int8_t> fused_activation_function{0};
};
struct EmbeddingLookupSparseOptions {
  static constexpr Field<int8_t> combiner{0};
};
struct GatherOptions {
  static constexpr Field<int32_t> axis{0};
  static constexpr Field<int32_t> batch_dims{1};
};
struct ReducerOptions {
  static constexpr Field<bool> keep_dims{0};
};
struct SqueezeOptions {
  static constexpr Field<Vector<int32_t>> squeeze_dims{0};
};
struct SplitOptions {
  static constexpr Field<int32_t> num_splits{0};
};
struct SplitVOptions {
  static constexpr Field<int32_t> num_splits{0};
};
struct StridedSliceOptions {
  static constexpr Field<int32_t> begin_mask{0};
  static constexpr Field<int32_t> end_mask{1};
  static constexpr Field<int32_t> ellipsis_mask{2};
  static constexpr Field<int32_t> new_axis_mask{3};
  static constexpr Field<int32_t> shrink_axis_mask{4};
  static constexpr Field<bool> offset{5};
};
struct CastOptions {
  static constexpr Field<int8_t> in_data_type{0};
  static constexpr Field<int8_t> out_data_type{1};
};
struct ArgMaxOptions {
  static constexpr Field<int8_t> output_type{0};
};
struct ArgMinOptions {
  static constexpr Field<int8_t> output_type{0};
};
struct TransposeConvOptions {
  static constexpr Field<int8_t> padding{0};
  static constexpr Field<int32_t> stride_w{1};
  static constexpr Field<int32_t> stride_h{2};
  static constexpr Field<int8_t> fused_activation_function{3};
  static constexpr Field<int8_t> quantized_bias_type{4};
};
struct SparseToDenseOptions {
  static constexpr Field<bool> validate_indices{0};
};
struct ShapeOptions {
  static constexpr Field<int8_t> out_type{0};
};
struct FakeQuantOptions {
  static constexpr Field<float> min{0};
  static constexpr Field<float> max{1};
  static constexpr Field<int32_t> num_bits{2};
  static constexpr Field<bool> narrow_range{3};
};
struct PackOptions {
  static constexpr Field<int32_t> values_count{0};
  static constexpr Field<int32_t> axis{1};
};
struct OneHotOptions {
  static constexpr Field<int32_t> axis{0};
};
struct UnpackOptions {
  static constexpr Field<int32_t> num{0};
  static constexpr Field<int32_t> axis{1};
};
struct LeakyReluOptions {
  static constexpr Field<float> alpha{0};
};
struct MirrorPadOptions {
  static constexpr Field<int8_t> mode{0};
};
struct UniqueOptions {
  static constexpr Field<int8_t> idx_out_type{0, 2};
};
struct ReverseSequenceOptions {
  static constexpr Field<int32_t> seq_dim{0};
  static constexpr Field<int32_t> batch_dim{1};
};
struct IfOptions {
  static constexpr Field<int32_t> then_subgraph_index{0};
  static constexpr Field<int32_t> else_subgraph_index{1};
};
struct CallOnceOptions {
  static constexpr Field<int32_t> init_subgraph_index{0};
};
struct WhileOptions {
  static constexpr Field<int32_t> cond_subgraph_index{0};
  static constexpr Field<int32_t> body_subgraph_index{1};
};
struct BatchMatMulOptions {
  static constexpr Field<bool> adj_x{0};
  static constexpr Field<bool> adj_y{1};
  static constexpr Field<bool> asymmetric_quantize_inputs{2};
};
struct CumsumOptions {
  static constexpr Field<bool> exclusive{0};
  static constexpr Field<bool> reverse{1};
};
struct HashtableOptions {
  static constexpr Field<int32_t> table_id{0};
  static constexpr Field<int8_t> key_dtype{1};
  static constexpr Field<int8_t> value_dtype{2};
};
struct VarHandleOptions {
  static constexpr Field<std::string_view> container{0};
  static constexpr Field<std::string_view> shared_name{1};
};
struct RandomOptions {
  static constexpr Field<int64_t> seed{0};
  static constexpr Field<int64_t> seed2{1};
};
struct BucketizeOptions {
  static constexpr Field<Vector<float>> boundaries{0};
};
struct GeluOptions {
  static constexpr Field<bool> approximate{0};
};
struct ReduceWindowOptions {
  static constexpr Field<int32_t> reduce_function{0};
};
struct OperatorCode {
  static constexpr Field<int8_t> deprecated_builtin_code{0};
  static constexpr Field<std::string_view> custom_code{1};
  static constexpr Field<int32_t> version{2, 1};
  static constexpr Field<int32_t> builtin_code{3};
};
struct StableHLOCompositeOptions {
  static constexpr Field<std::string_view> name{0};
  static constexpr Field<int32_t> decomposition_subgraph_index{1};
  static constexpr Field<Vector<uint8_t>> composite_attributes{2};
  static constexpr Field<int8_t> composite_attributes_format{3};
  static constexpr Field<int32_t> version{4};
};
struct OperatorTable {
  static constexpr Field<uint32_t> opcode_index{0};
  static constexpr Field<Vector<int32_t>> inputs{1};
  static constexpr Field<Vector<int32_t>> outputs{2};
  static constexpr Field<uint8_t> builtin_options_type{3};
  static constexpr Field<Table> builtin_options{4};
  static constexpr Field<Vector<uint8_t>> custom_options{5};
  static constexpr Field<int8_t> custom_options_format{6};
  static constexpr Field<Vector<bool>> mutating_variable_inputs{7};
  static constexpr Field<Vector<int32_t>> intermediates{8};
  static constexpr Field<uint64_t> large_custom_options_offset{9};
  static constexpr Field<uint64_t> large_custom_options_size{10};
  static constexpr Field<uint8_t> builtin_options2_type{11};
  static constexpr Field<Table> builtin_options2{12};
  static constexpr Field<int32_t> debug_metadata_index{13, -1};
};
struct SubGraphTable {
  static constexpr Field<Vector<Table>> tensors{0};
  static constexpr Field<Vector<int32_t>> inputs{1};
  static constexpr Field<Vector<int32_t>> outputs{2};
  static constexpr Field<Vector<Table>> operators{3};
  static constexpr Field<std::string_view> name{4};
  static constexpr Field<int32_t> debug_metadata_index{5, -1};
};
struct BufferTable {
  static constexpr Field<Vector<uint8_t>> data{0};
  static constexpr Field<uint64_t> offset{1};
  static constexpr Field<uint64_t> size{2};
};
struct ExternalBufferGroup {
  static constexpr Field<std::string_view> name{0};
};
struct ExternalBuffer {
  static constexpr Field<uint32_t> id{0};
  static constexpr Field<uint32_t> group{1};
  static constexpr Field<uint64_t> offset{2};
  static constexpr Field<uint64_t> length{3};
  static constexpr Field<std::string_view> packing{4};
};
struct Metadata {
  static constexpr Field<std::string_view> name{0};
  static constexpr Field<uint32_t> buffer{1};
};
struct TensorMap {
  static constexpr Field<std::string_view> name{0};
  static constexpr Field<uint32_t> tensor_index{1};
};
struct SignatureDef {
  static constexpr Field<Vector<Table>> inputs{0};
  static constexpr Field<Vector<Table>> outputs{1};
  static constexpr Field<std::string_view> signature_key{2};
  static constexpr Field<uint32_t> subgraph_index{4};
};
struct ModelTable {
  static constexpr Field<uint32_t> version{0};
  static constexpr Field<Vector<Table>> operator_codes{1};
  static constexpr Field<Vector<Table>> subgraphs{2};
  static constexpr Field<std::string_view> description{3};
  static constexpr Field<Vector<Table>> buffers{4};
  static constexpr Field<Vector<int32_t>> metadata_buffer{5};
  static constexpr Field<Vector<Table>> metadata{6};
  static constexpr Field<Vector<Table>> signature_defs{7};
  static constexpr Field<Vector<Table>> external_buffer_groups{8};
  static constexpr Field<Vector<Table>> external_buffers{9};
};
enum class TensorType : int8_t {
  kFloat32 = 0, kFloat16 = 1, kInt32 = 2, kUint8 = 3, kInt64 = 4, kString = 5, kBool = 6, kInt16 = 7, kComplex64 = 8,
  kInt8 = 9, kFloat64 = 10, kComplex128 = 11, kUint64 = 12, kResource = 13, kVariant = 14, kUint32 = 15,
  kUint16 = 16, kInt4 = 17, kBfloat16 = 18, kInt2 = 19, kUint4 = 20, kFloat8E4m3fn = 21, kFloat8E5m2 = 22,
};

enum class BuiltinOperator : int32_t {
  kAdd = 0, kAveragePool2d = 1, kConcatenation = 2, kConv2d = 3, kDepthwiseConv2d = 4, kDepthToSpace = 5,
  kDequantize = 6, kEmbeddingLookup = 7, kFloor = 8, kFullyConnected = 9, kHashtableLookup = 10,
  kL2Normalization = 11, kL2Pool2d = 12, kLocalResponseNormalization = 13, kLogistic = 14, kLshProjection = 15,
  kLstm = 16, kMaxPool2d = 17, kMul = 18, kRelu = 19, kReluN1To1 = 20, kRelu6 = 21, kReshape = 22,
  kResizeBilinear = 23, kRnn = 24, kSoftmax = 25, kSpaceToDepth = 26, kSvdf = 27, kTanh = 28, kConcatEmbeddings = 29,
  kSkipGram = 30, kCall = 31, kCustom = 32, kEmbeddingLookupSparse = 33, kPad = 34, kUnidirectionalSequenceRnn = 35,
  kGather = 36, kBatchToSpaceNd = 37, kSpaceToBatchNd = 38, kTranspose = 39, kMean = 40, kSub = 41, kDiv = 42,
  kSqueeze = 43, kUnidirectionalSequenceLstm = 44, kStridedSlice = 45, kBidirectionalSequenceRnn = 46, kExp = 47,
  kTopkV2 = 48, kSplit = 49, kLogSoftmax = 50, kDelegate = 51, kBidirectionalSequenceLstm = 52, kCast = 53,
  kPrelu = 54, kMaximum = 55, kArgMax = 56, kMinimum = 57, kLess = 58, kNeg = 59, kPadv2 = 60, kGreater = 61,
  kGreaterEqual = 62, kLessEqual = 63, kSelect = 64, kSlice = 65, kSin = 66, kTransposeConv = 67,
  kSparseToDense = 68, kTile = 69, kExpandDims = 70, kEqual = 71, kNotEqual = 72, kLog = 73, kSum = 74, kSqrt = 75,
  kRsqrt = 76, kShape = 77, kPow = 78, kArgMin = 79, kFakeQuant = 80, kReduceProd = 81, kReduceMax = 82, kPack = 83,
  kLogicalOr = 84, kOneHot = 85, kLogicalAnd = 86, kLogicalNot = 87, kUnpack = 88, kReduceMin = 89, kFloorDiv = 90,
  kReduceAny = 91, kSquare = 92, kZerosLike = 93, kFill = 94, kFloorMod = 95, kRange = 96,
  kResizeNearestNeighbor = 97, kLeakyRelu = 98, kSquaredDifference = 99, kMirrorPad = 100, kAbs = 101, kSplitV = 102,
  kUnique = 103, kCeil = 104, kReverseV2 = 105, kAddN = 106, kGatherNd = 107, kCos = 108, kWhere = 109, kRank = 110,
  kElu = 111, kReverseSequence = 112, kMatrixDiag = 113, kQuantize = 114, kMatrixSetDiag = 115, kRound = 116,
  kHardSwish = 117, kIf = 118, kWhile = 119, kNonMaxSuppressionV4 = 120, kNonMaxSuppressionV5 = 121,
  kScatterNd = 122, kSelectV2 = 123, kDensify = 124, kSegmentSum = 125, kBatchMatmul = 126,
  kPlaceholderForGreaterOpCodes = 127, kCumsum = 128, kCallOnce = 129, kBroadcastTo = 130, kRfft2d = 131,
  kConv3d = 132, kImag = 133, kReal = 134, kComplexAbs = 135, kHashtable = 136, kHashtableFind = 137,
  kHashtableImport = 138, kHashtableSize = 139, kReduceAll = 140, kConv3dTranspose = 141, kVarHandle = 142,
  kReadVariable = 143, kAssignVariable = 144, kBroadcastArgs = 145, kRandomStandardNormal = 146, kBucketize = 147,
  kRandomUniform = 148, kMultinomial = 149, kGelu = 150, kDynamicUpdateSlice = 151, kRelu0To1 = 152,
  kUnsortedSegmentProd = 153, kUnsortedSegmentMax = 154, kUnsortedSegmentSum = 155, kAtan2 = 156,
  kUnsortedSegmentMin = 157, kSign = 158, kBitcast = 159, kBitwiseXor = 160, kRightShift = 161,
  kStablehloLogistic = 162, kStablehloAdd = 163, kStablehloDivide = 164, kStablehloMultiply = 165,
  kStablehloMaximum = 166, kStablehloReshape = 167, kStablehloClamp = 168, kStablehloConcatenate = 169,
  kStablehloBroadcastInDim = 170, kStablehloConvolution = 171, kStablehloSlice = 172, kStablehloCustomCall = 173,
  kStablehloReduce = 174, kStablehloAbs = 175, kStablehloAnd = 176, kStablehloCosine = 177,
  kStablehloExponential = 178, kStablehloFloor = 179, kStablehloLog = 180, kStablehloMinimum = 181,
  kStablehloNegate = 182, kStablehloOr = 183, kStablehloPower = 184, kStablehloRemainder = 185,
  kStablehloRsqrt = 186, kStablehloSelect = 187, kStablehloSubtract = 188, kStablehloTanh = 189,
  kStablehloScatter = 190, kStablehloCompare = 191, kStablehloConvert = 192, kStablehloDynamicSlice = 193,
  kStablehloDynamicUpdateSlice = 194, kStablehloPad = 195, kStablehloIota = 196, kStablehloDotGeneral = 197,
  kStablehloReduceWindow = 198, kStablehloSort = 199, kStablehloWhile = 200, kStablehloGather = 201,
  kStablehloTranspose = 202, kDilate = 203, kStablehloRngBitGenerator = 204, kReduceWindow = 205,
  kStablehloComposite = 206, kStablehloShiftLeft = 207, kStablehloCbrt = 208, kStablehloCase = 209,
};

enum class Padding : int8_t {
  kSame = 0, kValid = 1,
};

enum class Activation : int8_t {
  kNone = 0, kRelu = 1, kReluN1To1 = 2, kRelu6 = 3, kTanh = 4, kSignBit = 5,
};

enum class MirrorPadMode : int8_t {
  kReflect = 0, kSymmetric = 1,
};

enum class LstmKernelType : int8_t {
  kFull = 0, kBasic = 1,
};

enum class FullyConnectedWeightsFormat : int8_t {
  kDefault = 0, kShuffled4x16int8 = 1,
};

/// Names of BuiltinOperator as the schema writes them, by number.
inline constexpr std::array<std::string_view, 210> kBuiltinNames = {
  "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE",
  "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP", "L2_NORMALIZATION", "L2_POOL_2D",
  "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "LSH_PROJECTION", "LSTM", "MAX_POOL_2D", "MUL", "RELU", "RELU_N1_TO_1",
  "RELU6", "RESHAPE", "RESIZE_BILINEAR", "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH", "CONCAT_EMBEDDINGS",
  "SKIP_GRAM", "CALL", "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD", "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER",
  "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "TRANSPOSE", "MEAN", "SUB", "DIV", "SQUEEZE",
  "UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE", "BIDIRECTIONAL_SEQUENCE_RNN", "EXP", "TOPK_V2", "SPLIT",
  "LOG_SOFTMAX", "DELEGATE", "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU", "MAXIMUM", "ARG_MAX", "MINIMUM", "LESS",
  "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL", "SELECT", "SLICE", "SIN", "TRANSPOSE_CONV",
  "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL", "LOG", "SUM", "SQRT", "RSQRT", "SHAPE", "POW",
  "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD", "REDUCE_MAX", "PACK", "LOGICAL_OR", "ONE_HOT", "LOGICAL_AND",
  "LOGICAL_NOT", "UNPACK", "REDUCE_MIN", "FLOOR_DIV", "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL", "FLOOR_MOD",
  "RANGE", "RESIZE_NEAREST_NEIGHBOR", "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS", "SPLIT_V", "UNIQUE",
  "CEIL", "REVERSE_V2", "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK", "ELU", "REVERSE_SEQUENCE", "MATRIX_DIAG",
  "QUANTIZE", "MATRIX_SET_DIAG", "ROUND", "HARD_SWISH", "IF", "WHILE", "NON_MAX_SUPPRESSION_V4",
  "NON_MAX_SUPPRESSION_V5", "SCATTER_ND", "SELECT_V2", "DENSIFY", "SEGMENT_SUM", "BATCH_MATMUL",
  "PLACEHOLDER_FOR_GREATER_OP_CODES", "CUMSUM", "CALL_ONCE", "BROADCAST_TO", "RFFT2D", "CONV_3D", "IMAG", "REAL",
  "COMPLEX_ABS", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "REDUCE_ALL",
  "CONV_3D_TRANSPOSE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "BROADCAST_ARGS", "RANDOM_STANDARD_NORMAL",
  "BUCKETIZE", "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE", "RELU_0_TO_1",
  "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2", "UNSORTED_SEGMENT_MIN", "SIGN",
  "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_LOGISTIC", "STABLEHLO_ADD", "STABLEHLO_DIVIDE",
  "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_RESHAPE", "STABLEHLO_CLAMP", "STABLEHLO_CONCATENATE",
  "STABLEHLO_BROADCAST_IN_DIM", "STABLEHLO_CONVOLUTION", "STABLEHLO_SLICE", "STABLEHLO_CUSTOM_CALL",
  "STABLEHLO_REDUCE", "STABLEHLO_ABS", "STABLEHLO_AND", "STABLEHLO_COSINE", "STABLEHLO_EXPONENTIAL",
  "STABLEHLO_FLOOR", "STABLEHLO_LOG", "STABLEHLO_MINIMUM", "STABLEHLO_NEGATE", "STABLEHLO_OR", "STABLEHLO_POWER",
  "STABLEHLO_REMAINDER", "STABLEHLO_RSQRT", "STABLEHLO_SELECT", "STABLEHLO_SUBTRACT", "STABLEHLO_TANH",
  "STABLEHLO_SCATTER", "STABLEHLO_COMPARE", "STABLEHLO_CONVERT", "STABLEHLO_DYNAMIC_SLICE",
  "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_PAD", "STABLEHLO_IOTA", "STABLEHLO_DOT_GENERAL",
  "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SORT", "STABLEHLO_WHILE", "STABLEHLO_GATHER", "STABLEHLO_TRANSPOSE",
  "DILATE", "STABLEHLO_RNG_BIT_GENERATOR", "REDUCE_WINDOW", "STABLEHLO_COMPOSITE", "STABLEHLO_SHIFT_LEFT",
  "STABLEHLO_CBRT", "STABLEHLO_CASE",
};
// clang-format on

}  // namespace tessera::litert
