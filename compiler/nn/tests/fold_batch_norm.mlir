// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-fold-batch-norm --split-input-file | FileCheck %s

// scale / sqrt(variance + 0) = [2, 0.5]; bias = (b - mean) * that + shift = [(1 - 3) * 2 + 5, (2 - 4) * 0.5 + 6].
// CHECK-LABEL: func.func @conv
// CHECK-DAG: %[[W:.*]] = nn.constant dense<{{\[\[\[\[}}2.000000e+00{{\]\]\]}}, {{\[\[\[}}5.000000e-01{{\]\]\]\]}}> : tensor<2x1x1x1xf32>
// CHECK-DAG: %[[B:.*]] = nn.constant dense<[1.000000e+00, 5.000000e+00]> : tensor<2xf32>
// CHECK: %[[Y:.*]] = nn.op "Conv"(%arg0, %[[W]], %[[B]])
// CHECK: return %[[Y]]
func.func @conv(%x: tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %w = nn.constant dense<1.0> : tensor<2x1x1x1xf32> -> tensor<2x1x1x1xf32>
  %b = nn.constant dense<[1.0, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %scale = nn.constant dense<[4.0, 1.0]> : tensor<2xf32> -> tensor<2xf32>
  %shift = nn.constant dense<[5.0, 6.0]> : tensor<2xf32> -> tensor<2xf32>
  %mean = nn.constant dense<[3.0, 4.0]> : tensor<2xf32> -> tensor<2xf32>
  %variance = nn.constant dense<4.0> : tensor<2xf32> -> tensor<2xf32>
  %0 = nn.op "Conv"(%x, %w, %b) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32>
  %1 = nn.op "BatchNormalization"(%0, %scale, %shift, %mean, %variance) opset 13 {epsilon = 0.0 : f32} : (tensor<1x2x4x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32>
  return %1 : tensor<1x2x4x4xf32>
}

// -----

// Weights behind DequantizeLinear belong to an integer operator: nothing is folded. Nor where the convolution is read twice.
// CHECK-LABEL: func.func @kept
// CHECK: "Conv"
// CHECK: "Mul"
// CHECK: "Conv"
// CHECK: "Mul"
func.func @kept(%x: tensor<1x1x4x4xf32>) -> (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) {
  %q = nn.constant dense<1> : tensor<2x1x1x1xi8> -> tensor<2x1x1x1xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %c = nn.constant dense<3.0> : tensor<f32> -> tensor<f32>
  %w = nn.op "DequantizeLinear"(%q, %s) opset 13 {} : (tensor<2x1x1x1xi8>, tensor<f32>) -> tensor<2x1x1x1xf32>
  %0 = nn.op "Conv"(%x, %w) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %1 = nn.op "Mul"(%0, %c) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
  %v = nn.constant dense<1.0> : tensor<2x1x1x1xf32> -> tensor<2x1x1x1xf32>
  %2 = nn.op "Conv"(%x, %v) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %3 = nn.op "Mul"(%2, %c) opset 13 {} : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
  return %1, %2, %3 : tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>
}

// -----

// CHECK-LABEL: func.func @matmul
// CHECK-DAG: %[[B:.*]] = nn.constant dense<[-2.000000e+00, -4.000000e+00]> : tensor<2xf32>
// CHECK: nn.op "Gemm"(%arg0, %{{.*}}, %[[B]])
func.func @matmul(%x: tensor<3x1xf32>) -> tensor<3x2xf32> {
  %w = nn.constant dense<1.0> : tensor<1x2xf32> -> tensor<1x2xf32>
  %scale = nn.constant dense<2.0> : tensor<2xf32> -> tensor<2xf32>
  %shift = nn.constant dense<0.0> : tensor<2xf32> -> tensor<2xf32>
  %mean = nn.constant dense<[1.0, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %variance = nn.constant dense<1.0> : tensor<2xf32> -> tensor<2xf32>
  %0 = nn.op "MatMul"(%x, %w) opset 13 {} : (tensor<3x1xf32>, tensor<1x2xf32>) -> tensor<3x2xf32>
  %1 = nn.op "BatchNormalization"(%0, %scale, %shift, %mean, %variance) opset 13 {epsilon = 0.0 : f32} : (tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<3x2xf32>
  return %1 : tensor<3x2xf32>
}
