// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-simplify --split-input-file | FileCheck %s

// CHECK-LABEL: func.func @neutral(%arg0: tensor<2x3xf32>)
// CHECK-NEXT: return %arg0
func.func @neutral(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %one = nn.constant dense<1.0> : tensor<3xf32> -> tensor<3xf32>
  %zero = nn.constant dense<0.0> : tensor<f32> -> tensor<f32>
  %0 = nn.op "Mul"(%one, %x) opset 13 {} : (tensor<3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = nn.op "Add"(%0, %zero) opset 13 {} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %2 = nn.op "Div"(%1, %one) opset 13 {} : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %3 = nn.op "Sub"(%2, %zero) opset 13 {} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %3 : tensor<2x3xf32>
}

// -----

// A neutral element that broadcasts the other operand up is not neutral; 0 - x and 1 / x are not x.
// CHECK-LABEL: func.func @not_neutral
// CHECK: "Mul"
// CHECK: "Sub"
func.func @not_neutral(%x: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>) {
  %one = nn.constant dense<1.0> : tensor<2x1xf32> -> tensor<2x1xf32>
  %zero = nn.constant dense<0.0> : tensor<f32> -> tensor<f32>
  %0 = nn.op "Mul"(%x, %one) opset 13 {} : (tensor<3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  %1 = nn.op "Sub"(%zero, %x) opset 13 {} : (tensor<f32>, tensor<3xf32>) -> tensor<3xf32>
  return %0, %1 : tensor<2x3xf32>, tensor<3xf32>
}

// -----

// CHECK-LABEL: func.func @strength
// CHECK: %[[C:.*]] = nn.constant dense<[2.500000e-01, -2.000000e+00]>
// CHECK: nn.op "Mul"(%arg0, %arg0)
// CHECK: nn.op "Mul"(%arg0, %[[C]])
// CHECK: nn.op "Div"
func.func @strength(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %two = nn.constant dense<2.0> : tensor<f32> -> tensor<f32>
  %powers = nn.constant dense<[4.0, -0.5]> : tensor<2xf32> -> tensor<2xf32>
  %three = nn.constant dense<3.0> : tensor<f32> -> tensor<f32>
  %0 = nn.op "Pow"(%x, %two) opset 13 {} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %1 = nn.op "Div"(%x, %powers) opset 13 {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %2 = nn.op "Div"(%x, %three) opset 13 {} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// CHECK-LABEL: func.func @compositions
// CHECK: %[[S:.*]] = nn.constant dense<[6, 4]>
// CHECK: nn.op "Transpose"(%arg0) opset 13 {perm = array<i64: 2, 0, 1>}
// CHECK: nn.op "Reshape"(%arg0, %[[S]])
func.func @compositions(%x: tensor<2x3x4xf32>) -> (tensor<4x2x3xf32>, tensor<6x4xf32>) {
  %0 = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %1 = nn.op "Transpose"(%0) opset 13 {perm = array<i64: 1, 2, 0>} : (tensor<3x4x2xf32>) -> tensor<4x2x3xf32>
  %f = nn.op "Flatten"(%x) opset 13 {axis = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<2x12xf32>
  %s = nn.constant dense<[6, -1]> : tensor<2xi64> -> tensor<2xi64>
  %2 = nn.op "Reshape"(%f, %s) opset 13 {} : (tensor<2x12xf32>, tensor<2xi64>) -> tensor<6x4xf32>
  return %1, %2 : tensor<4x2x3xf32>, tensor<6x4xf32>
}

// -----

// CHECK-LABEL: func.func @casts
// CHECK-DAG: %[[A:.*]] = nn.op "Cast"(%arg0) opset 13 {to = 11 : i64}
// CHECK-DAG: %[[B:.*]] = nn.op "Cast"(%arg1) opset 13 {to = 3 : i64}
// CHECK-DAG: %[[C:.*]] = nn.op "Cast"(%[[B]]) opset 13 {to = 1 : i64}
// CHECK: return %[[A]], %arg0, %[[C]]
func.func @casts(%i: tensor<2xi8>, %f: tensor<2xf32>) -> (tensor<2xf64>, tensor<2xi8>, tensor<2xf32>) {
  %0 = nn.op "Cast"(%i) opset 13 {to = 1 : i64} : (tensor<2xi8>) -> tensor<2xf32>
  %1 = nn.op "Cast"(%0) opset 13 {to = 11 : i64} : (tensor<2xf32>) -> tensor<2xf64>
  %2 = nn.op "Cast"(%0) opset 13 {to = 3 : i64} : (tensor<2xf32>) -> tensor<2xi8>
  %3 = nn.op "Cast"(%f) opset 13 {to = 3 : i64} : (tensor<2xf32>) -> tensor<2xi8>
  %4 = nn.op "Cast"(%3) opset 13 {to = 1 : i64} : (tensor<2xi8>) -> tensor<2xf32>
  return %1, %2, %4 : tensor<2xf64>, tensor<2xi8>, tensor<2xf32>
}

// -----

// CHECK-LABEL: func.func @repetition
// CHECK-NEXT: %[[R:.*]] = nn.op "Relu"(%arg0)
// CHECK-NEXT: return %[[R]], %arg0
func.func @repetition(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = nn.op "Relu"(%x) opset 13 {} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = nn.op "Relu"(%0) opset 13 {} : (tensor<2xf32>) -> tensor<2xf32>
  %2 = nn.op "Neg"(%x) opset 13 {} : (tensor<2xf32>) -> tensor<2xf32>
  %3 = nn.op "Neg"(%2) opset 13 {} : (tensor<2xf32>) -> tensor<2xf32>
  return %1, %3 : tensor<2xf32>, tensor<2xf32>
}

// -----

// Where a past grows no constant holds an extent along it: one that stays is 0, one that is joined is -1. Two that are
// not known stay with the Reshape that had them.
// CHECK-LABEL: func.func @past_grows
// CHECK: %[[S:.*]] = nn.constant dense<[0, -1, 1]>
// CHECK: nn.op "Reshape"(%arg0, %[[S]]) {{.*}} -> tensor<2x60x1xf32>
// CHECK: %[[R:.*]] = nn.op "Reshape"(%arg0, %{{.*}}) {{.*}} -> tensor<10x12xf32>
// CHECK: nn.op "Reshape"(%[[R]], %{{.*}}) {{.*}} -> tensor<2x5x3x4xf32>
func.func @past_grows(%x: tensor<2x5x12xf32>) -> (tensor<2x60x1xf32>, tensor<2x5x3x4xf32>)
    attributes {nn.past_grows} {
  %joined = nn.constant dense<[2, -1]> : tensor<2xi64> -> tensor<2xi64>
  %last = nn.constant dense<[0, -1, 1]> : tensor<3xi64> -> tensor<3xi64>
  %rows = nn.constant dense<[-1, 12]> : tensor<2xi64> -> tensor<2xi64>
  %heads = nn.constant dense<[2, -1, 3, 4]> : tensor<4xi64> -> tensor<4xi64>
  %0 = nn.op "Reshape"(%x, %joined) opset 13 {} : (tensor<2x5x12xf32>, tensor<2xi64>) -> tensor<2x60xf32>
  %1 = nn.op "Reshape"(%0, %last) opset 13 {} : (tensor<2x60xf32>, tensor<3xi64>) -> tensor<2x60x1xf32>
  %2 = nn.op "Reshape"(%x, %rows) opset 13 {} : (tensor<2x5x12xf32>, tensor<2xi64>) -> tensor<10x12xf32>
  %3 = nn.op "Reshape"(%2, %heads) opset 13 {} : (tensor<10x12xf32>, tensor<4xi64>) -> tensor<2x5x3x4xf32>
  return %1, %3 : tensor<2x60x1xf32>, tensor<2x5x3x4xf32>
}
