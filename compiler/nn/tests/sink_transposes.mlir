// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-sink-transposes --canonicalize --split-input-file | FileCheck %s

// A transpose passes element-wise operators, a constant and a quantisation, and meets its inverse.
// CHECK-LABEL: func.func @cancel
// CHECK-NOT: "Transpose"
// CHECK: %[[C:.*]] = nn.constant dense<{{.*}}> : tensor<1x1x1x4xf32>
// CHECK: nn.op "Relu"(%arg0) {{.*}} -> tensor<1x2x3x4xf32>
// CHECK: nn.op "Mul"(%{{.*}}, %[[C]])
// CHECK: %[[Q:.*]] = nn.op "QuantizeLinear"
// CHECK: return %[[Q]] : tensor<1x2x3x4xi8>
func.func @cancel(%x: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xi8> {
  %c = nn.constant dense<[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]> : tensor<4x1x1xf32> -> tensor<4x1x1xf32>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<3> : tensor<i8> -> tensor<i8>
  %0 = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 0, 3, 1, 2>} : (tensor<1x2x3x4xf32>) -> tensor<1x4x2x3xf32>
  %1 = nn.op "Relu"(%0) opset 13 {} : (tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32>
  %2 = nn.op "Mul"(%1, %c) opset 13 {} : (tensor<1x4x2x3xf32>, tensor<4x1x1xf32>) -> tensor<1x4x2x3xf32>
  %3 = nn.op "QuantizeLinear"(%2, %s, %z) opset 13 {} : (tensor<1x4x2x3xf32>, tensor<f32>, tensor<i8>) -> tensor<1x4x2x3xi8>
  %4 = nn.op "Transpose"(%3) opset 13 {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x4x2x3xi8>) -> tensor<1x2x3x4xi8>
  return %4 : tensor<1x2x3x4xi8>
}

// -----

// CHECK-LABEL: func.func @axes
// CHECK: nn.op "Concat"(%arg0, %arg1) opset 13 {axis = 2 : i64}
// CHECK: nn.op "Softmax"(%{{.*}}) opset 13 {axis = 1 : i64}
// CHECK: "Transpose"
// CHECK-NOT: "Transpose"
func.func @axes(%x: tensor<2x3x4xf32>, %y: tensor<2x3x4xf32>) -> tensor<8x2x3xf32> {
  %0 = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %1 = nn.op "Transpose"(%y) opset 13 {perm = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %2 = nn.op "Concat"(%0, %1) opset 13 {axis = 0 : i64} : (tensor<4x2x3xf32>, tensor<4x2x3xf32>) -> tensor<8x2x3xf32>
  %3 = nn.op "Softmax"(%2) opset 13 {axis = -1 : i64} : (tensor<8x2x3xf32>) -> tensor<8x2x3xf32>
  return %3 : tensor<8x2x3xf32>
}

// -----

// A transposed value that others read stays where it is; one that only moves extents of one is a reshape.
// CHECK-LABEL: func.func @kept
// CHECK: %[[T:.*]] = nn.op "Transpose"(%arg0)
// CHECK: nn.op "Relu"(%[[T]])
// CHECK: nn.op "Reshape"(%arg1, %{{.*}}) {{.*}} -> tensor<1x3x1x2xf32>
func.func @kept(%x: tensor<2x3xf32>, %y: tensor<1x1x3x2xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>, tensor<1x3x1x2xf32>) {
  %0 = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = nn.op "Relu"(%0) opset 13 {} : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %2 = nn.op "Transpose"(%y) opset 13 {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x1x3x2xf32>) -> tensor<1x3x1x2xf32>
  return %0, %1, %2 : tensor<3x2xf32>, tensor<3x2xf32>, tensor<1x3x1x2xf32>
}

// -----

// x * sigmoid(x): both readers of the transposed value lead to one value, which meets the inverse.
// CHECK-LABEL: func.func @diamond
// CHECK-NOT: "Transpose"
// CHECK: %[[S:.*]] = nn.op "HardSigmoid"(%arg0)
// CHECK: %[[M:.*]] = nn.op "Mul"(%arg0, %[[S]])
// CHECK: return %[[M]]
func.func @diamond(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = nn.op "HardSigmoid"(%0) opset 13 {} : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %2 = nn.op "Mul"(%0, %1) opset 13 {} : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %3 = nn.op "Transpose"(%2) opset 13 {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}
