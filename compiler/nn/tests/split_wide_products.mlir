// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-split-wide-products --split-input-file | FileCheck %s

// Two products of bytes, the high one times 256, and one rounding to float.
// CHECK-LABEL: func.func @by_bytes
// CHECK: nn.op "BitwiseAnd"
// CHECK-DAG: %[[HIGH:.*]] = nn.op "Cast"({{.*}}) {{.*}} -> tensor<3x2xi8>
// CHECK-DAG: %[[LOW:.*]] = nn.op "Cast"({{.*}}) {{.*}} -> tensor<3x2xui8>
// CHECK: nn.op "MatMulInteger"(%[[HIGH]],
// CHECK: nn.op "Mul"({{.*}}) {{.*}} -> tensor<3x2xi64>
// CHECK: nn.op "MatMulInteger"(%[[LOW]],
// CHECK: %[[SUM:.*]] = nn.op "Add"({{.*}}) {{.*}} -> tensor<3x2xi64>
// CHECK: %[[REAL:.*]] = nn.op "Cast"(%[[SUM]])
// CHECK: nn.op "Mul"(%[[REAL]],
// CHECK-NOT: "MatMul"(
func.func @by_bytes(%x: tensor<3x2xi16>) -> tensor<3x2xf32> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %sx = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %sw = nn.constant dense<[0.25, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %a = nn.op "DequantizeLinear"(%x, %sx) opset 21 {} : (tensor<3x2xi16>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %sw) opset 21 {axis = 1 : si64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 21 {} : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// A scale for each row of the sum cannot be taken out of it.
// CHECK-LABEL: func.func @along_the_sum
// CHECK: nn.op "MatMul"(
func.func @along_the_sum(%x: tensor<3x2xi16>) -> tensor<3x2xf32> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %sx = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %sw = nn.constant dense<[0.25, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %a = nn.op "DequantizeLinear"(%x, %sx) opset 21 {} : (tensor<3x2xi16>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %sw) opset 21 {axis = 0 : si64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 21 {} : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// Bytes by bytes are for other passes.
// CHECK-LABEL: func.func @bytes
// CHECK: nn.op "MatMul"(
func.func @bytes(%x: tensor<3x2xi8>) -> tensor<3x2xf32> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %a = nn.op "DequantizeLinear"(%x, %s) opset 21 {} : (tensor<3x2xi8>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {} : (tensor<2x2xi8>, tensor<f32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 21 {} : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// Integers in float64, as LiteRT's operators have them.
// CHECK-LABEL: func.func @exact
// CHECK-COUNT-2: nn.op "MatMulInteger"(
// CHECK: nn.op "Cast"({{.*}}) {{.*}} -> tensor<3x2xf64>
func.func @exact(%x: tensor<3x2xi16>) -> tensor<3x2xf64> {
  %w = nn.constant dense<-3.0> : tensor<2x2xf64> -> tensor<2x2xf64>
  %a = nn.op "Cast"(%x) opset 21 {to = 11 : si64} : (tensor<3x2xi16>) -> tensor<3x2xf64>
  %0 = nn.op "MatMul"(%a, %w) opset 21 {} : (tensor<3x2xf64>, tensor<2x2xf64>) -> tensor<3x2xf64>
  return %0 : tensor<3x2xf64>
}
