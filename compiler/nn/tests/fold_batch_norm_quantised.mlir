// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-fold-batch-norm-quantised --split-input-file | FileCheck %s

// Factors 3 and -2 go into the scales; where one is negative the integers change their signs.
// CHECK-LABEL: func.func @free
// CHECK-DAG: nn.constant dense<[1.500000e+00, 1.000000e+00]> : tensor<2xf32>
// CHECK-DAG: nn.constant dense<{{\[\[\[\[}}1{{\]\]\]}}, {{\[\[\[}}-1{{\]\]\]\]}}> : tensor<2x1x1x1xi8>
// CHECK: %[[W:.*]] = nn.op "DequantizeLinear"
// CHECK: %[[Y:.*]] = nn.op "Conv"(%arg0, %[[W]]
// CHECK-NOT: "Mul"
// CHECK: return %[[Y]]
func.func @free(%x: tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32> attributes {nn.free_groups} {
  %q = nn.constant dense<1> : tensor<2x1x1x1xi8> -> tensor<2x1x1x1xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %c = nn.constant dense<[[[[3.0]], [[-2.0]]]]> : tensor<1x2x1x1xf32> -> tensor<1x2x1x1xf32>
  %w = nn.op "DequantizeLinear"(%q, %s) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>) -> tensor<2x1x1x1xf32>
  %0 = nn.op "Conv"(%x, %w) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %1 = nn.op "Mul"(%0, %c) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<1x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  return %1 : tensor<1x2x4x4xf32>
}

// -----

// A network that ONNX Runtime runs keeps its groups.
// CHECK-LABEL: func.func @kept
// CHECK: "Mul"
func.func @kept(%x: tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %q = nn.constant dense<1> : tensor<2x1x1x1xi8> -> tensor<2x1x1x1xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %w = nn.op "DequantizeLinear"(%q, %s) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>) -> tensor<2x1x1x1xf32>
  %0 = nn.op "Conv"(%x, %w) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %1 = nn.op "Mul"(%0, %s) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
  return %1 : tensor<1x2x4x4xf32>
}
