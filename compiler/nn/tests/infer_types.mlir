// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-infer-types --split-input-file | FileCheck %s

// Shape arithmetic is evaluated on the way: the target of Reshape is computed from the shape of %x.
// CHECK-LABEL: func.func @shape_arithmetic
// CHECK-SAME: -> tensor<6x4xf32>
func.func @shape_arithmetic(%x: tensor<2x3x4xf32>) -> tensor<*xf32> {
  %shape = nn.op "Shape"(%x) opset 15 {start = 2 : i64} : (tensor<2x3x4xf32>) -> tensor<*xi64>
  %minus = nn.constant dense<-1> : tensor<1xi64> -> tensor<1xi64>
  %target = nn.op "Concat"(%minus, %shape) opset 15 {axis = 0 : i64} : (tensor<1xi64>, tensor<*xi64>) -> tensor<*xi64>
  // CHECK: nn.op "Reshape"{{.*}} -> tensor<6x4xf32>
  %0 = nn.op "Reshape"(%x, %target) opset 15 {} : (tensor<2x3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// CHECK-LABEL: func.func @dynamic
func.func @dynamic(%x: tensor<?x3x?xf32>, %y: tensor<1x3x5xf32>) -> tensor<*xf32> {
  // CHECK: nn.op "MatMul"{{.*}} -> tensor<?x3x5xf32>
  %w = nn.op "Transpose"(%x) opset 13 {perm = array<i64: 0, 2, 1>} : (tensor<?x3x?xf32>) -> tensor<*xf32>
  %0 = nn.op "MatMul"(%x, %w) opset 13 {} : (tensor<?x3x?xf32>, tensor<*xf32>) -> tensor<*xf32>
  %1 = nn.op "MatMul"(%0, %y) opset 13 {} : (tensor<*xf32>, tensor<1x3x5xf32>) -> tensor<*xf32>
  return %1 : tensor<*xf32>
}
