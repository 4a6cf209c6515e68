# SPDX-License-Identifier: Apache-2.0
"""What each operator of LiteRT promises, by its type; docs/litert_operators.md is generated from it.

- "exact": every bit of every element is what Interpreter(file) gives, with XNNPACK where it takes the operator;
- "tolerance": real arithmetic whose sums have another order or whose functions come from another library;
- "step": quantised, single elements may lie one step beside; "steps": of 16 bits, some of 32,768;
- "chance": random numbers, of which type and shape are compared;
- "refused": one line says so."""

# Real results that are exact: moved, compared, rounded, or of one operation that IEEE 754 rounds.
EXACT = """
ABS CEIL FLOOR ROUND SQUARE NEG SIGN RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 ZEROS_LIKE FAKE_QUANT CAST BITCAST QUANTIZE
DEQUANTIZE ADD SUB MUL DIV FLOOR_DIV FLOOR_MOD MAXIMUM MINIMUM SQUARED_DIFFERENCE EQUAL NOT_EQUAL LESS LESS_EQUAL
GREATER GREATER_EQUAL REDUCE_MAX REDUCE_MIN ARG_MAX ARG_MIN TOPK_V2 UNIQUE BUCKETIZE UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_MIN RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE
STRIDED_SLICE PAD PADV2 MIRROR_PAD GATHER GATHER_ND TILE BROADCAST_TO REVERSE_V2 REVERSE_SEQUENCE SPACE_TO_DEPTH
DEPTH_TO_SPACE SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND FILL RANGE SHAPE RANK ONE_HOT SELECT SELECT_V2 WHERE
SPARSE_TO_DENSE MATRIX_DIAG MATRIX_SET_DIAG DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP HASHTABLE_LOOKUP DILATE MAX_POOL_2D
RESIZE_NEAREST_NEIGHBOR LEAKY_RELU PRELU ADD_N IF WHILE CALL_ONCE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE
NON_MAX_SUPPRESSION_V4 STABLEHLO_ADD STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_PAD
STABLEHLO_COMPOSITE SEGMENT_SUM UNSORTED_SEGMENT_SUM UNSORTED_SEGMENT_PROD CUMSUM
"""
EXACT_REAL = set(EXACT.split())
CHANCE = {"MULTINOMIAL", "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"}
EXCEPTIONS = {
    "BATCH_MATMUL": {"int8": "step"},
    "DEPTHWISE_CONV_2D": {"uint8": "step"},
    "LOGISTIC": {"int16": "steps"},
    "QUANTIZE": dict.fromkeys(["int8 to uint8", "uint8 to int8", "int32 to int8", "int32 to int16"], "step"),
    "TANH": {"int16": "steps"},
    "TRANSPOSE_CONV": {"int8": "step", "uint8": "step", "int8 per channel": "step"},
}
# Where `--litert-kernels reference` gives what the default gives: the reference kernel of SUM forgets the zero point.
DEFAULT_ONLY = {("SUM", "int8"), ("SUM", "int16")}
REFUSED = {"DIV": {"uint8"}, "REDUCE_PROD": {"int8", "int16"}, "QUANTIZE": {"int16 to int32"}}


def class_of(operator, words):
    """`words`: how the case names its types, e.g. "int8" or "int8 per channel"."""
    if words in REFUSED.get(operator, ()):
        return "refused"
    if operator in CHANCE:
        return "chance"
    if words in EXCEPTIONS.get(operator, {}):
        return EXCEPTIONS[operator][words]
    real = words.split()[0] in ("float32", "float64", "float16", "complex64") if words else True
    return "tolerance" if real and operator not in EXACT_REAL else "exact"
