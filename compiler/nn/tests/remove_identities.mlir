// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-remove-identities --split-input-file | FileCheck %s

// CHECK-LABEL: func.func @chain(%arg0: tensor<2x3xf32>)
// CHECK-NEXT: return %arg0
func.func @chain(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %none = nn.none
  %s = nn.constant dense<[2, -1]> : tensor<2xi64> -> tensor<2xi64>
  %p = nn.constant dense<0> : tensor<4xi64> -> tensor<4xi64>
  %0 = nn.op "Identity"(%x) opset 13 {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = nn.op "Dropout"(%0) opset 13 {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = nn.op "Reshape"(%1, %s) opset 13 {} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  %3 = nn.op "Transpose"(%2) opset 13 {perm = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = nn.op "Cast"(%3) opset 13 {to = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %5 = nn.op "Pad"(%4, %p) opset 13 {} : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<2x3xf32>
  %6 = nn.op "Concat"(%5) opset 13 {axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %7 = nn.op "Clip"(%6) opset 13 {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %7 : tensor<2x3xf32>
}

// -----

// What does something stays: a reversed slice has the same shape, a dynamic reshape may change it, a mask may be read.
// CHECK-LABEL: func.func @kept
// CHECK: "Slice"
// CHECK: "Dropout"
// CHECK: "Transpose"
func.func @kept(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xi1>, tensor<2x2xf32>) {
  %start = nn.constant dense<-1> : tensor<1xi64> -> tensor<1xi64>
  %end = nn.constant dense<-9> : tensor<1xi64> -> tensor<1xi64>
  %axis = nn.constant dense<0> : tensor<1xi64> -> tensor<1xi64>
  %0 = nn.op "Slice"(%x, %start, %end, %axis, %start) opset 13 {} : (tensor<2x2xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x2xf32>
  %1:2 = nn.op "Dropout"(%x) opset 13 {} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xi1>)
  %2 = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0, %1#0, %1#1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xi1>, tensor<2x2xf32>
}

// -----

// CHECK-LABEL: func.func @empty(
// CHECK-NOT: Relu
// CHECK: nn.op "Concat"(%arg1, %arg1)
func.func @empty(%x: tensor<0x3xf32>, %y: tensor<2x3xf32>) -> (tensor<0x3xf32>, tensor<4x3xf32>) {
  %0 = nn.op "Relu"(%x) opset 13 {} : (tensor<0x3xf32>) -> tensor<0x3xf32>
  %1 = nn.op "Concat"(%y, %x, %y) opset 13 {axis = 0 : i64} : (tensor<2x3xf32>, tensor<0x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  return %0, %1 : tensor<0x3xf32>, tensor<4x3xf32>
}

// -----

// CHECK-LABEL: func.func @known_condition
// CHECK-NEXT: %[[Y:.*]] = nn.op "Abs"(%arg0)
// CHECK-NEXT: return %[[Y]]
func.func @known_condition(%x: tensor<2xf32>) -> tensor<2xf32> {
  %c = nn.constant dense<false> : tensor<i1> -> tensor<i1>
  %0 = nn.op "If"(%c) opset 13 {} bodies ["then_branch", "else_branch"] {
    %1 = nn.op "Relu"(%x) opset 13 {} : (tensor<2xf32>) -> tensor<2xf32>
    nn.return %1 : tensor<2xf32>
  }, {
    %1 = nn.op "Abs"(%x) opset 13 {} : (tensor<2xf32>) -> tensor<2xf32>
    nn.return %1 : tensor<2xf32>
  } : (tensor<i1>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
