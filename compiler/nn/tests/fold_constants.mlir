// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-fold-constants --split-input-file | FileCheck %s
// RUN: tessera-opt %s --nn-fold-all-constants --split-input-file | FileCheck %s --check-prefix=ALL

// CHECK-LABEL: func.func @arithmetic
func.func @arithmetic(%x: tensor<2xf32>) -> tensor<2xf32> {
  %a = nn.constant dense<[1.0, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %b = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  // CHECK: %[[C:.*]] = nn.constant dense<[1.500000e+00, 2.500000e+00]>
  // CHECK-NEXT: nn.op "Mul"(%{{.*}}, %[[C]])
  %c = nn.op "Add"(%a, %b) opset 13 {} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %d = nn.op "Mul"(%x, %c) opset 13 {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %d : tensor<2xf32>
}

// -----

// A shape is known though the tensor is not.
// CHECK-LABEL: func.func @shape
// CHECK: %[[S:.*]] = nn.constant dense<[2, 3]> : tensor<2xi64>
// CHECK: return %[[S]]
func.func @shape(%x: tensor<2x3xf32>) -> tensor<2xi64> {
  %0 = nn.op "Shape"(%x) opset 13 {} : (tensor<2x3xf32>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// -----

// Dequantised weights stay until quantisation has been folded.
// CHECK-LABEL: func.func @weights
// CHECK: nn.op "DequantizeLinear"
// ALL-LABEL: func.func @weights
// ALL: nn.constant dense<[5.000000e-01, -1.000000e+00]>
// ALL-NOT: DequantizeLinear
func.func @weights() -> tensor<2xf32> {
  %w = nn.constant dense<[1, -2]> : tensor<2xi8> -> tensor<2xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %0 = nn.op "DequantizeLinear"(%w, %s) opset 13 {} : (tensor<2xi8>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// Random generators are neither folded nor merged.
// CHECK-LABEL: func.func @random
// CHECK: nn.op "RandomNormal"
func.func @random() -> tensor<2xf32> {
  %0 = nn.op "RandomNormal"() opset 13 {shape = array<i64: 2>} : () -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
