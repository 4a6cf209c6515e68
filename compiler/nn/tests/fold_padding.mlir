// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-fold-padding --canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: func.func @conv
// CHECK-NOT: "Pad"
// CHECK: nn.op "Conv"(%arg0, %{{.*}}) opset 13 {pads = array<i64: 1, 3, 1, 2>}
func.func @conv(%x: tensor<1x1x4x4xf32>) -> tensor<1x1x4x7xf32> {
  %p = nn.constant dense<[0, 0, 0, 2, 0, 0, 0, 1]> : tensor<8xi64> -> tensor<8xi64>
  %w = nn.constant dense<1.0> : tensor<1x1x3x3xf32> -> tensor<1x1x3x3xf32>
  %0 = nn.op "Pad"(%x, %p) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<8xi64>) -> tensor<1x1x4x7xf32>
  %1 = nn.op "Conv"(%0, %w) opset 13 {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x1x4x7xf32>, tensor<1x1x3x3xf32>) -> tensor<1x1x4x7xf32>
  return %1 : tensor<1x1x4x7xf32>
}

// -----

// An integer convolution pads with its zero point, and only a pad of that value folds.
// CHECK-LABEL: func.func @integer
// CHECK: nn.op "ConvInteger"(%arg0, {{.*}} {pads = array<i64: 0, 1, 0, 1>}
// CHECK: %[[P:.*]] = nn.op "Pad"(%arg0
// CHECK: nn.op "ConvInteger"(%[[P]], {{.*}} {}
func.func @integer(%x: tensor<1x1x4x4xui8>) -> (tensor<1x1x4x6xi32>, tensor<1x1x4x6xi32>) {
  %p = nn.constant dense<[0, 0, 0, 1, 0, 0, 0, 1]> : tensor<8xi64> -> tensor<8xi64>
  %z = nn.constant dense<7> : tensor<ui8> -> tensor<ui8>
  %n = nn.constant dense<0> : tensor<ui8> -> tensor<ui8>
  %w = nn.constant dense<1> : tensor<1x1x1x1xui8> -> tensor<1x1x1x1xui8>
  %0 = nn.op "Pad"(%x, %p, %z) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<8xi64>, tensor<ui8>) -> tensor<1x1x4x6xui8>
  %1 = nn.op "ConvInteger"(%0, %w, %z) opset 13 {} : (tensor<1x1x4x6xui8>, tensor<1x1x1x1xui8>, tensor<ui8>) -> tensor<1x1x4x6xi32>
  %2 = nn.op "Pad"(%x, %p, %n) opset 13 {} : (tensor<1x1x4x4xui8>, tensor<8xi64>, tensor<ui8>) -> tensor<1x1x4x6xui8>
  %3 = nn.op "ConvInteger"(%2, %w, %z) opset 13 {} : (tensor<1x1x4x6xui8>, tensor<1x1x1x1xui8>, tensor<ui8>) -> tensor<1x1x4x6xi32>
  return %1, %3 : tensor<1x1x4x6xi32>, tensor<1x1x4x6xi32>
}

// -----

// MaxPool pads with minus infinity, not with 0; AveragePool counts what Pad added.
// CHECK-LABEL: func.func @pools
// CHECK: "Pad"
// CHECK: "MaxPool"
// CHECK: nn.op "AveragePool"(%arg0) opset 13 {count_include_pad = 1 : i64, kernel_shape = array<i64: 2, 2>, pads = array<i64: 0, 1, 0, 1>}
func.func @pools(%x: tensor<1x1x4x4xf32>) -> (tensor<1x1x3x5xf32>, tensor<1x1x3x5xf32>) {
  %p = nn.constant dense<[0, 0, 0, 1, 0, 0, 0, 1]> : tensor<8xi64> -> tensor<8xi64>
  %0 = nn.op "Pad"(%x, %p) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<8xi64>) -> tensor<1x1x4x6xf32>
  %1 = nn.op "MaxPool"(%0) opset 13 {kernel_shape = array<i64: 2, 2>} : (tensor<1x1x4x6xf32>) -> tensor<1x1x3x5xf32>
  %2 = nn.op "AveragePool"(%0) opset 13 {kernel_shape = array<i64: 2, 2>} : (tensor<1x1x4x6xf32>) -> tensor<1x1x3x5xf32>
  return %1, %2 : tensor<1x1x3x5xf32>, tensor<1x1x3x5xf32>
}
