// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-split-float-products --split-input-file | FileCheck %s

// float(sum) * (sa * sb) + bias.
// CHECK-LABEL: func.func @to_float
// CHECK-DAG: %[[SUM:.*]] = nn.op "MatMulInteger"(%arg0,
// CHECK-DAG: %[[SCALE:.*]] = nn.op "Mul"(
// CHECK: %[[REAL:.*]] = nn.op "Cast"(%[[SUM]])
// CHECK: %[[SCALED:.*]] = nn.op "Mul"(%[[REAL]], %[[SCALE]])
// CHECK: nn.op "Add"(%[[SCALED]],
func.func @to_float(%a: tensor<3x2xui8>) -> tensor<3x2xf32> {
  %b = nn.constant dense<1> : tensor<2x2xi8> -> tensor<2x2xi8>
  %sa = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %sb = nn.constant dense<[0.25, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %za = nn.constant dense<7> : tensor<ui8> -> tensor<ui8>
  %zb = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %bias = nn.constant dense<[1.0, 3.0]> : tensor<2xf32> -> tensor<2xf32>
  %0 = nn.op "MatMulIntegerToFloat"(%a, %b, %sa, %sb, %za, %zb, %bias) domain "com.microsoft" opset 1 {} : (tensor<3x2xui8>, tensor<2x2xi8>, tensor<f32>, tensor<2xf32>, tensor<ui8>, tensor<i8>, tensor<2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// Weights that are computed at run time stay.
// CHECK-LABEL: func.func @kept
// CHECK: "MatMulIntegerToFloat"
func.func @kept(%a: tensor<3x2xui8>, %b: tensor<2x2xi8>) -> tensor<3x2xf32> {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %0 = nn.op "MatMulIntegerToFloat"(%a, %b, %s, %s) domain "com.microsoft" opset 1 {} : (tensor<3x2xui8>, tensor<2x2xi8>, tensor<f32>, tensor<f32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}
