// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --pass=partition | FileCheck %s

func.func @main(%x: tensor<1x2x3x3xui8>, %m: tensor<4x2xui8>, %t: tensor<2x3xui8>)
    -> (tensor<1x2x3x3xui8>, tensor<1x2x3x3xi32>, tensor<4x2xi8>, tensor<4x3xi32>) {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %one = nn.constant dense<1.0> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<3> : tensor<ui8> -> tensor<ui8>
  %z0 = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %w = nn.constant dense<[[[[1]], [[2]]], [[[3]], [[4]]]]> : tensor<2x2x1x1xi8> -> tensor<2x2x1x1xi8>
  %ws = nn.constant dense<[0.25, 0.5]> : tensor<2xf32> -> tensor<2xf32>
  %wz = nn.constant dense<0> : tensor<2xi8> -> tensor<2xi8>
  %bias = nn.constant dense<[10, -20]> : tensor<2xi32> -> tensor<2xi32>
  %b = nn.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi8> -> tensor<2x2xi8>

  // A convolution: multipliers (sx * sw) / sy for each channel, bounds around the zero point.
  // CHECK: convolution "" op="QLinearConv" macs=36 operands=[%0] results=[%1] input_zero=3 weights=[1, 2, 3, 4]
  // CHECK-NEXT: weight_zero=[0, 0]
  // CHECK-SAME: stage={convert=true bias=[10, -20] multiplier=[0.125, 0.25] low=-3 high=252 zero=3}
  %0 = nn.op "QLinearConv"(%x, %s, %z, %w, %ws, %wz, %one, %z, %bias) opset 13 {}
      : (tensor<1x2x3x3xui8>, tensor<f32>, tensor<ui8>, tensor<2x2x1x1xi8>, tensor<2xf32>, tensor<2xi8>, tensor<f32>, tensor<ui8>, tensor<2xi32>) -> tensor<1x2x3x3xui8>

  // Sums leave as they are.
  // CHECK: convolution "" op="ConvInteger" macs=36 operands=[%0] results=[%2] input_zero=3 weights=[1, 2, 3, 4]
  // CHECK-NEXT: weight_zero=[0] stage={raw=true}
  %1 = nn.op "ConvInteger"(%x, %w, %z) opset 13 {} : (tensor<1x2x3x3xui8>, tensor<2x2x1x1xi8>, tensor<ui8>) -> tensor<1x2x3x3xi32>

  // A constant factor stands [columns, k].
  // CHECK: matmul "" op="QLinearMatMul" macs=16 operands=[%3] results=[%4] input_zero=3 weights=[1, 3, 2, 4] weight_zero=[0]
  // CHECK-NEXT: stage={convert=true multiplier=[0.25] low=-128 high=127}
  %2 = nn.op "QLinearMatMul"(%m, %s, %z, %b, %s, %z0, %one, %z0) opset 13 {}
      : (tensor<4x2xui8>, tensor<f32>, tensor<ui8>, tensor<2x2xi8>, tensor<f32>, tensor<i8>, tensor<f32>, tensor<i8>) -> tensor<4x2xi8>

  // Two values.
  // CHECK: product "" op="MatMulInteger" macs=24 operands=[%3, %5] results=[%6] left_zero=3 stage={raw=true}
  %3 = nn.op "MatMulInteger"(%m, %t, %z) opset 13 {} : (tensor<4x2xui8>, tensor<2x3xui8>, tensor<ui8>) -> tensor<4x3xi32>
  return %0, %1, %2, %3 : tensor<1x2x3x3xui8>, tensor<1x2x3x3xi32>, tensor<4x2xi8>, tensor<4x3xi32>
}
