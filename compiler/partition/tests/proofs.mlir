// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --pass=partition | FileCheck %s

// What ONNX Runtime computes in fp32 is placed where it is proven equal, and stays with the CPU where it is not.
func.func @main(%x: tensor<1x1x2x2xui8>, %y: tensor<1x2x2x2xi8>, %v: tensor<1x2x2x2xi8>)
    -> (tensor<1x1x4x4xui8>, tensor<1x1x4x4xui8>, tensor<1x2x1x1xi8>, tensor<1x2x1x1xi8>, tensor<1x4x2x2xi8>, tensor<1x2x4x2xi8>, tensor<1x2x2x2xui8>) {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %third = nn.constant dense<0.3333> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<2> : tensor<ui8> -> tensor<ui8>
  %zi = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %w = nn.constant dense<[[[[1.0, 2.0], [3.0, 4.0]]]]> : tensor<1x1x2x2xf32> -> tensor<1x1x2x2xf32>
  %f = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x1x2x2xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x1x2x2xf32>
  %up = nn.op "ConvTranspose"(%f, %w) opset 11 {strides = array<i64: 2, 2>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x4x4xf32>

  // Powers of two, integer weights times a unit: exact in every order of the sums.
  // CHECK: transposed_convolution "" op="ConvTranspose" macs=16 operands=[%0] results=[%1] kernel=[2, 2] strides=[2, 2]
  // CHECK-NEXT: input_zero=2 weights=[1, 2, 3, 4]
  // CHECK-SAME: stage={convert=true bias=[0] multiplier=[1] low=-2 high=253 zero=2}
  %exact = nn.op "QuantizeLinear"(%up, %s, %z) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xui8>
  // A scale that is no power of two.
  // CHECK-NOT: transposed_convolution
  %inexact = nn.op "QuantizeLinear"(%up, %third, %z) opset 13 {} : (tensor<1x1x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x1x4x4xui8>

  // A mean of four bytes: every sum gives the byte of the operator.
  // CHECK: reduce "" op="ReduceMean" operands=[%2] results=[%3] kind=sum reduced=[false, false, true, true]
  // CHECK-NEXT: stage={convert=true bias=[0] multiplier=[0.25] low=-128 high=127}
  %g = nn.op "DequantizeLinear"(%y, %s, %zi) opset 13 {} : (tensor<1x2x2x2xi8>, tensor<f32>, tensor<i8>) -> tensor<1x2x2x2xf32>
  %mean = nn.op "ReduceMean"(%g) opset 13 {axes = array<i64: 2, 3>} : (tensor<1x2x2x2xf32>) -> tensor<1x2x1x1xf32>
  %bytes = nn.op "QuantizeLinear"(%mean, %s, %zi) opset 13 {} : (tensor<1x2x1x1xf32>, tensor<f32>, tensor<i8>) -> tensor<1x2x1x1xi8>
  // A product over the image is no sum.
  // CHECK-NOT: ReduceProd
  %prod = nn.op "ReduceProd"(%g) opset 13 {axes = array<i64: 2, 3>} : (tensor<1x2x2x2xf32>) -> tensor<1x2x1x1xf32>
  %rest = nn.op "QuantizeLinear"(%prod, %s, %zi) opset 13 {} : (tensor<1x2x1x1xf32>, tensor<f32>, tensor<i8>) -> tensor<1x2x1x1xi8>

  // Chains of movements and unary operators into a concatenation: steps and a table for each operand.
  // CHECK: concat "" op="Concat" operands=[%2, %2] results=[%4] axis=1 tables={{\[\[\], #0\] steps=\[\[\], \[\]\]}} stages=[{}, {}]
  %relu = nn.op "Relu"(%g) opset 13 {} : (tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %cat = nn.op "Concat"(%g, %relu) opset 13 {axis = 1 : i64} : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x4x2x2xf32>
  %joined = nn.op "QuantizeLinear"(%cat, %s, %zi) opset 13 {} : (tensor<1x4x2x2xf32>, tensor<f32>, tensor<i8>) -> tensor<1x4x2x2xi8>

  // A pad inside a chain: its value goes through the operators behind it, so the table comes first.
  // CHECK: move "" op="Relu" operands=[%2] results=[%5]
  // CHECK-NEXT: steps=[{{\[}}{kind=pad extents=[1, 2, 4, 2] numbers=[0, 0, 1, 0] value=6}]] table=#0 table_first=true
  %pads = nn.constant dense<[0, 0, 1, 0, 0, 0, 1, 0]> : tensor<8xi64> -> tensor<8xi64>
  %three = nn.constant dense<3.0> : tensor<f32> -> tensor<f32>
  %padded = nn.op "Pad"(%g, %pads, %three) opset 13 {} : (tensor<1x2x2x2xf32>, tensor<8xi64>, tensor<f32>) -> tensor<1x2x4x2xf32>
  %clipped = nn.op "Relu"(%padded) opset 13 {} : (tensor<1x2x4x2xf32>) -> tensor<1x2x4x2xf32>
  %moved = nn.op "QuantizeLinear"(%clipped, %s, %zi) opset 13 {} : (tensor<1x2x4x2xf32>, tensor<f32>, tensor<i8>) -> tensor<1x2x4x2xi8>

  // A quotient of two values has no form on the machine.
  // CHECK-NOT: Div
  // CHECK: {{^[}]$}}
  %h = nn.op "DequantizeLinear"(%v, %s, %zi) opset 13 {} : (tensor<1x2x2x2xi8>, tensor<f32>, tensor<i8>) -> tensor<1x2x2x2xf32>
  %quotient = nn.op "Div"(%g, %h) opset 13 {} : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  %div = nn.op "QuantizeLinear"(%quotient, %s, %z) opset 13 {} : (tensor<1x2x2x2xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x2xui8>
  return %exact, %inexact, %bytes, %rest, %joined, %moved, %div : tensor<1x1x4x4xui8>, tensor<1x1x4x4xui8>, tensor<1x2x1x1xi8>, tensor<1x2x1x1xi8>, tensor<1x4x2x2xi8>, tensor<1x2x4x2xi8>, tensor<1x2x2x2xui8>
}
