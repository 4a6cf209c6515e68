// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-prove-integer --canonicalize --split-input-file | FileCheck %s

// Two run-time tensors: the unit is the product of the scales. A transpose in between moves bytes.
// CHECK-LABEL: func.func @activations
// CHECK-DAG: %[[UNIT:.*]] = nn.constant dense<3.906250e-03> : tensor<f32>
// CHECK: %[[T:.*]] = nn.op "Transpose"(%arg1) {{.*}} -> tensor<16x5xui8>
// CHECK: %[[S:.*]] = nn.op "MatMulInteger"(%arg0, %[[T]]
// CHECK: %[[D:.*]] = nn.op "DequantizeLinear"(%[[S]], %[[UNIT]])
// CHECK: return %[[D]]
func.func @activations(%a: tensor<3x16xi8>, %b: tensor<5x16xui8>) -> tensor<3x5xf32> {
  %s = nn.constant dense<0.0625> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<3> : tensor<i8> -> tensor<i8>
  %u = nn.constant dense<130> : tensor<ui8> -> tensor<ui8>
  %0 = nn.op "DequantizeLinear"(%a, %s, %z) opset 13 {} : (tensor<3x16xi8>, tensor<f32>, tensor<i8>) -> tensor<3x16xf32>
  %1 = nn.op "DequantizeLinear"(%b, %s, %u) opset 13 {} : (tensor<5x16xui8>, tensor<f32>, tensor<ui8>) -> tensor<5x16xf32>
  %2 = nn.op "Transpose"(%1) opset 13 {perm = array<i64: 1, 0>} : (tensor<5x16xf32>) -> tensor<16x5xf32>
  %3 = nn.op "MatMul"(%0, %2) opset 13 {} : (tensor<3x16xf32>, tensor<16x5xf32>) -> tensor<3x5xf32>
  return %3 : tensor<3x5xf32>
}

// -----

// What turns the result of an Einsum stands behind the only Q.
// CHECK-LABEL: func.func @einsum
// CHECK: nn.op "MatMulInteger"
// CHECK: nn.op "DequantizeLinear"
// CHECK: %[[Q:.*]] = nn.op "QuantizeLinear"(%{{.*}}) {{.*}} -> tensor<2x4x3x8xi8>
// CHECK: %[[T:.*]] = nn.op "Transpose"(%[[Q]]) {{.*}}perm = array<i64: 0, 2, 1, 3>{{.*}} -> tensor<2x3x4x8xi8>
// CHECK: return %[[T]]
func.func @einsum(%p: tensor<2x4x3x3xi8>, %v: tensor<2x3x4x8xi8>) -> tensor<2x3x4x8xi8> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %0 = nn.op "DequantizeLinear"(%p, %s, %z) opset 13 {} : (tensor<2x4x3x3xi8>, tensor<f32>, tensor<i8>) -> tensor<2x4x3x3xf32>
  %1 = nn.op "DequantizeLinear"(%v, %s, %z) opset 13 {} : (tensor<2x3x4x8xi8>, tensor<f32>, tensor<i8>) -> tensor<2x3x4x8xf32>
  %2 = nn.op "Einsum"(%0, %1) opset 13 {equation = "bhij,bjhd->bihd"} : (tensor<2x4x3x3xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %3 = nn.op "QuantizeLinear"(%2, %s, %z) opset 13 {} : (tensor<2x3x4x8xf32>, tensor<f32>, tensor<i8>) -> tensor<2x3x4x8xi8>
  return %3 : tensor<2x3x4x8xi8>
}

// -----

// 259 * 255 * 255 is beyond 2^24: fp32 rounds, in an order of its own.
// CHECK-LABEL: func.func @long_sums
// CHECK-NOT: "MatMulInteger"
func.func @long_sums(%a: tensor<3x259xui8>, %b: tensor<259x5xui8>) -> tensor<3x5xf32> {
  %s = nn.constant dense<0.0625> : tensor<f32> -> tensor<f32>
  %u = nn.constant dense<0> : tensor<ui8> -> tensor<ui8>
  %0 = nn.op "DequantizeLinear"(%a, %s, %u) opset 13 {} : (tensor<3x259xui8>, tensor<f32>, tensor<ui8>) -> tensor<3x259xf32>
  %1 = nn.op "DequantizeLinear"(%b, %s, %u) opset 13 {} : (tensor<259x5xui8>, tensor<f32>, tensor<ui8>) -> tensor<259x5xf32>
  %2 = nn.op "MatMul"(%0, %1) opset 13 {} : (tensor<3x259xf32>, tensor<259x5xf32>) -> tensor<3x5xf32>
  return %2 : tensor<3x5xf32>
}

// -----

// A transposed convolution of three dimensions: its phases are channels, and move into place as bytes.
// CHECK-LABEL: func.func @deep_transposed
// CHECK: %[[S:.*]] = nn.op "ConvInteger"({{.*}}) {{.*}} -> tensor<3x8x3x3xi32>
// CHECK: nn.op "DequantizeLinear"(%[[S]],
// CHECK: %[[R:.*]] = nn.op "Relu"
// CHECK: nn.op "QuantizeLinear"(%[[R]],
// CHECK: nn.op "Transpose"({{.*}}) {{.*}} -> tensor<1x1x3x2x3x2x3x2xi8>
// CHECK-NOT: "ConvTranspose"
func.func @deep_transposed(%x: tensor<1x2x3x3x3xi8>) -> tensor<1x1x6x6x6xi8> {
  %w = nn.constant dense<3.0> : tensor<2x1x2x2x2xf32> -> tensor<2x1x2x2x2xf32>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<2> : tensor<i8> -> tensor<i8>
  %0 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x2x3x3x3xi8>, tensor<f32>, tensor<i8>) -> tensor<1x2x3x3x3xf32>
  %1 = nn.op "ConvTranspose"(%0, %w) opset 11 {strides = array<i64: 2, 2, 2>} : (tensor<1x2x3x3x3xf32>, tensor<2x1x2x2x2xf32>) -> tensor<1x1x6x6x6xf32>
  %2 = nn.op "Relu"(%1) opset 14 {} : (tensor<1x1x6x6x6xf32>) -> tensor<1x1x6x6x6xf32>
  %3 = nn.op "QuantizeLinear"(%2, %s, %z) opset 13 {} : (tensor<1x1x6x6x6xf32>, tensor<f32>, tensor<i8>) -> tensor<1x1x6x6x6xi8>
  return %3 : tensor<1x1x6x6x6xi8>
}
