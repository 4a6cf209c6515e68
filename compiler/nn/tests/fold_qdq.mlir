// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-fold-qdq --split-input-file | FileCheck %s

// The float bias becomes int32 with the scale 0.5 * 0.25; the Relu goes, because the Q's range starts at its zero point.
// CHECK-LABEL: func.func @conv
// CHECK-DAG: %[[B:.*]] = nn.constant dense<[8, -24]> : tensor<2xi32>
// CHECK-DAG: %[[Q:.*]] = nn.op "QuantizeLinear"(%arg0
// CHECK: %[[Y:.*]] = nn.op "QLinearConv"(%[[Q]], {{.*}}, %[[B]]) opset 13 {pads = array<i64: 1, 1, 1, 1>}
// CHECK-NOT: Relu
// CHECK: "DequantizeLinear"(%[[Y]]
func.func @conv(%x: tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %ws = nn.constant dense<0.25> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<128> : tensor<ui8> -> tensor<ui8>
  %z0 = nn.constant dense<0> : tensor<ui8> -> tensor<ui8>
  %wz = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %w = nn.constant dense<3> : tensor<2x1x3x3xi8> -> tensor<2x1x3x3xi8>
  %b = nn.constant dense<[1.0, -3.0]> : tensor<2xf32> -> tensor<2xf32>
  %0 = nn.op "QuantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xui8>
  %1 = nn.op "DequantizeLinear"(%0, %s, %z) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %2 = nn.op "DequantizeLinear"(%w, %ws, %wz) opset 13 {} : (tensor<2x1x3x3xi8>, tensor<f32>, tensor<i8>) -> tensor<2x1x3x3xf32>
  %3 = nn.op "Conv"(%1, %2, %b) opset 13 {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x4xf32>, tensor<2x1x3x3xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32>
  %4 = nn.op "Relu"(%3) opset 13 {} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %5 = nn.op "QuantizeLinear"(%4, %s, %z0) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  %6 = nn.op "DequantizeLinear"(%5, %s, %z0) opset 13 {} : (tensor<1x2x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xf32>
  return %6 : tensor<1x2x4x4xf32>
}

// -----

// A Relu that the Q does not imply: the convolution stays float between DQ and Relu.
// CHECK-LABEL: func.func @relu_stays
// CHECK: "DequantizeLinear"
// CHECK: "Conv"
// CHECK: "Relu"
// CHECK: "QuantizeLinear"
func.func @relu_stays(%x: tensor<1x1x4x4xui8>, %w: tensor<2x1x1x1xi8>) -> tensor<1x2x4x4xui8> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %wz = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %1 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %2 = nn.op "DequantizeLinear"(%w, %s, %wz) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>, tensor<i8>) -> tensor<2x1x1x1xf32>
  %3 = nn.op "Conv"(%1, %2) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %4 = nn.op "Relu"(%3) opset 13 {} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %5 = nn.op "QuantizeLinear"(%4, %s, %z) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  return %5 : tensor<1x2x4x4xui8>
}

// -----

// Q moves up through MaxPool, so that the convolution is fused; then Q and DQ around MaxPool go.
// CHECK-LABEL: func.func @behind_a_pool
// CHECK: %[[Y:.*]] = nn.op "QLinearConv"
// CHECK: %[[P:.*]] = nn.op "MaxPool"(%[[Y]]) opset 13 {kernel_shape = array<i64: 2, 2>} : (tensor<1x2x4x4xui8>) -> tensor<1x2x3x3xui8>
// CHECK: return %[[P]]
func.func @behind_a_pool(%x: tensor<1x1x4x4xui8>, %w: tensor<2x1x1x1xi8>) -> tensor<1x2x3x3xui8> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %wz = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %1 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %2 = nn.op "DequantizeLinear"(%w, %s, %wz) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>, tensor<i8>) -> tensor<2x1x1x1xf32>
  %3 = nn.op "Conv"(%1, %2) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %4 = nn.op "MaxPool"(%3) opset 13 {kernel_shape = array<i64: 2, 2>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x3x3xf32>
  %5 = nn.op "QuantizeLinear"(%4, %s, %z) opset 13 {} : (tensor<1x2x3x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x3x3xui8>
  return %5 : tensor<1x2x3x3xui8>
}

// -----

// One DQ for two readers: each group takes its own. The second reader's Q has no zero point, which is 0.
// CHECK-LABEL: func.func @shared
// CHECK-DAG: nn.op "QLinearAdd"(%arg0, {{.*}}, %arg1, {{.*}}) domain "com.microsoft" opset 1
// CHECK-DAG: nn.op "QLinearLeakyRelu"(%arg0, {{.*}}) domain "com.microsoft" opset 1 {alpha = 2.000000e-01 : f32}
func.func @shared(%x: tensor<4xui8>, %y: tensor<4xui8>) -> (tensor<4xui8>, tensor<4xui8>) {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %1 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<4xui8>, tensor<f32>, tensor<ui8>) -> tensor<4xf32>
  %2 = nn.op "DequantizeLinear"(%y, %s, %z) opset 13 {} : (tensor<4xui8>, tensor<f32>, tensor<ui8>) -> tensor<4xf32>
  %3 = nn.op "Add"(%1, %2) opset 13 {} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = nn.op "QuantizeLinear"(%3, %s, %z) opset 13 {} : (tensor<4xf32>, tensor<f32>, tensor<ui8>) -> tensor<4xui8>
  %5 = nn.op "LeakyRelu"(%1) opset 13 {alpha = 0.2 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  %6 = nn.op "QuantizeLinear"(%5, %s) opset 13 {} : (tensor<4xf32>, tensor<f32>) -> tensor<4xui8>
  return %4, %6 : tensor<4xui8>, tensor<4xui8>
}

// -----

// A product without a Q gives fp32; one whose result also leaves the graph as fp32 and meets a Q is not fused.
// CHECK-LABEL: func.func @matmul
// CHECK: %[[F:.*]] = nn.op "MatMulIntegerToFloat"(%arg0, %arg1
// CHECK: %[[M:.*]] = nn.op "MatMul"
// CHECK: %[[Q:.*]] = nn.op "QuantizeLinear"(%[[M]]
// CHECK: return %[[F]], %[[M]], %[[Q]]
func.func @matmul(%a: tensor<2x3xui8>, %b: tensor<3x4xi8>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xui8>) {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %t = nn.constant dense<0.25> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %wz = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %1 = nn.op "DequantizeLinear"(%a, %s, %z) opset 13 {} : (tensor<2x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x3xf32>
  %2 = nn.op "DequantizeLinear"(%b, %s, %wz) opset 13 {} : (tensor<3x4xi8>, tensor<f32>, tensor<i8>) -> tensor<3x4xf32>
  %3 = nn.op "MatMul"(%1, %2) opset 13 {} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %4 = nn.op "DequantizeLinear"(%b, %t, %wz) opset 13 {} : (tensor<3x4xi8>, tensor<f32>, tensor<i8>) -> tensor<3x4xf32>
  %5 = nn.op "MatMul"(%1, %4) opset 13 {} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %6 = nn.op "QuantizeLinear"(%5, %s, %z) opset 13 {} : (tensor<2x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x4xui8>
  return %3, %5, %6 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xui8>
}

// -----

// Weights transposed behind their DQ, per channel on the last axis (given as -1): the constant is transposed, the axis follows.
// CHECK-LABEL: func.func @transposed_weights
// CHECK-NOT: Transpose
// CHECK: nn.op "QLinearConv"(%arg0, {{.*}}) opset 13 {} : (tensor<1x1x4x4xui8>, {{.*}}, tensor<2x1x1x1xi8>, tensor<2xf32>, tensor<2xi8>, {{.*}}) -> tensor<1x2x4x4xui8>
func.func @transposed_weights(%x: tensor<1x1x4x4xui8>) -> tensor<1x2x4x4xui8> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %w = nn.constant dense<3> : tensor<1x1x1x2xi8> -> tensor<1x1x1x2xi8>
  %ws = nn.constant dense<[0.5, 0.25]> : tensor<2xf32> -> tensor<2xf32>
  %wz = nn.constant dense<0> : tensor<2xi8> -> tensor<2xi8>
  %1 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %2 = nn.op "DequantizeLinear"(%w, %ws, %wz) opset 13 {axis = -1 : i64} : (tensor<1x1x1x2xi8>, tensor<2xf32>, tensor<2xi8>) -> tensor<1x1x1x2xf32>
  %3 = nn.op "Transpose"(%2) opset 13 {perm = array<i64: 3, 2, 0, 1>} : (tensor<1x1x1x2xf32>) -> tensor<2x1x1x1xf32>
  %4 = nn.op "Conv"(%1, %3) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %5 = nn.op "QuantizeLinear"(%4, %s, %z) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  return %5 : tensor<1x2x4x4xui8>
}

// -----

// Equal parameters given twice are two Q, so the convolution is not fused; the same parameters are one Q.
// CHECK-LABEL: func.func @two_q
// CHECK: "Conv"
// CHECK: "QLinearConv"
func.func @two_q(%x: tensor<1x1x4x4xui8>, %w: tensor<2x1x1x1xi8>) -> (tensor<1x2x4x4xui8>, tensor<1x2x4x4xui8>, tensor<1x2x4x4xui8>, tensor<1x2x4x4xui8>) {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %z2 = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %t = nn.constant dense<0.25> : tensor<f32> -> tensor<f32>
  %wz = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %1 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xf32>
  %2 = nn.op "DequantizeLinear"(%w, %s, %wz) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>, tensor<i8>) -> tensor<2x1x1x1xf32>
  %3 = nn.op "Conv"(%1, %2) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %4 = nn.op "QuantizeLinear"(%3, %s, %z) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  %5 = nn.op "QuantizeLinear"(%3, %s, %z2) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  %6 = nn.op "DequantizeLinear"(%w, %t, %wz) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>, tensor<i8>) -> tensor<2x1x1x1xf32>
  %7 = nn.op "Conv"(%1, %6) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %8 = nn.op "QuantizeLinear"(%7, %s, %z) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  %9 = nn.op "QuantizeLinear"(%7, %s, %z) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  return %4, %5, %8, %9 : tensor<1x2x4x4xui8>, tensor<1x2x4x4xui8>, tensor<1x2x4x4xui8>, tensor<1x2x4x4xui8>
}

// -----

// Q and DQ around operators that only move elements; Pad takes the quantised value of its padding.
// CHECK-LABEL: func.func @movers
// CHECK: %[[T:.*]] = nn.op "Transpose"(%arg0) {{.*}} : (tensor<2x3xui8>) -> tensor<3x2xui8>
// CHECK: %[[P:.*]] = nn.constant dense<7> : tensor<ui8>
// CHECK: nn.op "Pad"(%[[T]], %{{.*}}, %[[P]]) {{.*}} : (tensor<3x2xui8>, tensor<4xi64>, tensor<ui8>) -> tensor<3x3xui8>
// CHECK-NEXT: return
func.func @movers(%x: tensor<2x3xui8>) -> tensor<3x3xui8> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<5> : tensor<ui8> -> tensor<ui8>
  %pads = nn.constant dense<[0, 0, 0, 1]> : tensor<4xi64> -> tensor<4xi64>
  %one = nn.constant dense<1.0> : tensor<f32> -> tensor<f32>
  %1 = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<2x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x3xf32>
  %2 = nn.op "Transpose"(%1) opset 13 {} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %3 = nn.op "Pad"(%2, %pads, %one) opset 13 {} : (tensor<3x2xf32>, tensor<4xi64>, tensor<f32>) -> tensor<3x3xf32>
  %4 = nn.op "QuantizeLinear"(%3, %s, %z) opset 13 {} : (tensor<3x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<3x3xui8>
  return %4 : tensor<3x3xui8>
}
