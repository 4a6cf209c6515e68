// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-split-wide-products --split-input-file | FileCheck %s
// RUN: tessera-opt %s --nn-split-close-products --split-input-file | FileCheck %s --check-prefix=CLOSE

// Two products of bytes, the high one times 256, and one rounding to float.
// CHECK-LABEL: func.func @by_bytes
// CHECK: nn.op "BitwiseAnd"
// CHECK-DAG: %[[HIGH:.*]] = nn.op "Cast"({{.*}}) {{.*}} -> tensor<65x2xi8>
// CHECK-DAG: %[[LOW:.*]] = nn.op "Cast"({{.*}}) {{.*}} -> tensor<65x2xui8>
// CHECK-DAG: nn.op "MatMulInteger"(%[[HIGH]],
// CHECK-DAG: nn.op "MatMulInteger"(%[[LOW]],
// CHECK: nn.op "Mul"({{.*}}) {{.*}} -> tensor<65x2xf64>
// CHECK: %[[SUM:.*]] = nn.op "Add"({{.*}}) {{.*}} -> tensor<65x2xf64>
// CHECK: %[[REAL:.*]] = nn.op "Cast"(%[[SUM]])
// CHECK: nn.op "Mul"(%[[REAL]],
// CHECK-NOT: "MatMul"(
func.func @by_bytes(%x: tensor<65x2xi16>) -> tensor<65x2xf32> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %sx = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %sw = nn.constant dense<[0.25, 2.0]> : tensor<2xf32> -> tensor<2xf32>
  %a = nn.op "DequantizeLinear"(%x, %sx) opset 21 {} : (tensor<65x2xi16>, tensor<f32>) -> tensor<65x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %sw) opset 21 {axis = 1 : si64} : (tensor<2x2xi8>, tensor<2xf32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 21 {} : (tensor<65x2xf32>, tensor<2x2xf32>) -> tensor<65x2xf32>
  return %0 : tensor<65x2xf32>
}

// -----

// Few rows: both bytes of a value are rows of one product, and a constant takes off what is above the signed value.
// CHECK-LABEL: func.func @few_rows
// CHECK: nn.constant dense<-1.966080e+05> : tensor<2xf64>
// CHECK: nn.op "BitShift"
// CHECK: nn.op "MatMulInteger"({{.*}}) {{.*}} -> tensor<6x2xi32>
// CHECK-NOT: "MatMulInteger"
// CHECK: nn.op "Split"({{.*}}) {{.*}} -> (tensor<3x2xi32>, tensor<3x2xi32>)
func.func @few_rows(%x: tensor<3x2xi16>) -> tensor<3x2xf32> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %a = nn.op "DequantizeLinear"(%x, %s) opset 21 {} : (tensor<3x2xi16>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {} : (tensor<2x2xi8>, tensor<f32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 21 {} : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// -----

// A transposed convolution of stride 2: four results of a place are channels, and move there behind the sum.
// CHECK-LABEL: func.func @transposed
// CHECK-COUNT-2: nn.op "ConvInteger"({{.*}}) {{.*}} -> tensor<1x4x4x4xi32>
// CHECK: nn.op "Transpose"
// CHECK: nn.op "Slice"({{.*}}) {{.*}} -> tensor<1x1x7x7xf32>
func.func @transposed(%x: tensor<1x2x3x3xi16>) -> tensor<1x1x7x7xf32> {
  %w = nn.constant dense<3> : tensor<2x1x3x3xi8> -> tensor<2x1x3x3xi8>
  %s = nn.constant dense<0.3> : tensor<f32> -> tensor<f32>
  %a = nn.op "DequantizeLinear"(%x, %s) opset 21 {} : (tensor<1x2x3x3xi16>, tensor<f32>) -> tensor<1x2x3x3xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {} : (tensor<2x1x3x3xi8>, tensor<f32>) -> tensor<2x1x3x3xf32>
  %0 = nn.op "ConvTranspose"(%a, %b) opset 21 {strides = array<i64: 2, 2>} : (tensor<1x2x3x3xf32>, tensor<2x1x3x3xf32>) -> tensor<1x1x7x7xf32>
  return %0 : tensor<1x1x7x7xf32>
}

// -----

// Bytes whose product becomes bytes stay as ONNX Runtime has them; the others are integers.
// CHECK-LABEL: func.func @to_bytes
// CHECK: nn.op "MatMul"(
// CHECK-LABEL: func.func @to_float
// CHECK: nn.op "MatMulInteger"(
func.func @to_bytes(%x: tensor<3x2xi8>) -> tensor<3x2xi8> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %s = nn.constant dense<0.3> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %a = nn.op "DequantizeLinear"(%x, %s) opset 21 {} : (tensor<3x2xi8>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {} : (tensor<2x2xi8>, tensor<f32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 21 {} : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %1 = nn.op "Relu"(%0) opset 21 {} : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %2 = nn.op "QuantizeLinear"(%1, %s, %z) opset 21 {} : (tensor<3x2xf32>, tensor<f32>, tensor<i8>) -> tensor<3x2xi8>
  return %2 : tensor<3x2xi8>
}
func.func @to_float(%x: tensor<3x2xi8>) -> tensor<3x2xf32> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %s = nn.constant dense<0.3> : tensor<f32> -> tensor<f32>
  %a = nn.op "DequantizeLinear"(%x, %s) opset 21 {} : (tensor<3x2xi8>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {} : (tensor<2x2xi8>, tensor<f32>) -> tensor<2x2xf32>
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

// Bytes by bytes whose scales are powers of two are for another pass.
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
// CHECK-COUNT-1: nn.op "MatMulInteger"(
// CHECK: nn.op "Cast"({{.*}}) {{.*}} -> tensor<3x2xf64>
func.func @exact(%x: tensor<3x2xi16>) -> tensor<3x2xf64> {
  %w = nn.constant dense<-3.0> : tensor<2x2xf64> -> tensor<2x2xf64>
  %a = nn.op "Cast"(%x) opset 21 {to = 11 : si64} : (tensor<3x2xi16>) -> tensor<3x2xf64>
  %0 = nn.op "MatMul"(%a, %w) opset 21 {} : (tensor<3x2xf64>, tensor<2x2xf64>) -> tensor<3x2xf64>
  return %0 : tensor<3x2xf64>
}

// -----

// Bytes behind a float operator depend on the order of the sum: the product stays, but with close numerics, and the
// function says how many there are.
// CHECK-LABEL: func.func @bytes_behind_float
// CHECK-SAME: nn.close_products = 1
// CHECK: "MatMul"(
// CLOSE-LABEL: func.func @bytes_behind_float
// CLOSE: nn.op "MatMulInteger"(%arg0,
// CLOSE-NOT: "MatMul"(
func.func @bytes_behind_float(%x: tensor<3x2xi8>) -> tensor<3x2xi8> {
  %w = nn.constant dense<3> : tensor<2x2xi8> -> tensor<2x2xi8>
  %s = nn.constant dense<0.3> : tensor<f32> -> tensor<f32>
  %a = nn.op "DequantizeLinear"(%x, %s) opset 13 {} : (tensor<3x2xi8>, tensor<f32>) -> tensor<3x2xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 13 {} : (tensor<2x2xi8>, tensor<f32>) -> tensor<2x2xf32>
  %0 = nn.op "MatMul"(%a, %b) opset 13 {} : (tensor<3x2xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %1 = nn.op "Sigmoid"(%0) opset 13 {} : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %z = nn.constant dense<1> : tensor<i8> -> tensor<i8>
  %2 = nn.op "QuantizeLinear"(%1, %s, %z) opset 13 {} : (tensor<3x2xf32>, tensor<f32>, tensor<i8>) -> tensor<3x2xi8>
  return %2 : tensor<3x2xi8>
}
