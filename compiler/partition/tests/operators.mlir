// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --pass=partition | FileCheck %s

func.func @main(%x: tensor<1x2x2x4xui8>, %y: tensor<1x2x2x4xui8>, %sums: tensor<1x2x2x4xi32>)
    -> (tensor<1x2x2x2xui8>, tensor<1x2x1x1xui8>, tensor<1x2xui8>, tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x4x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x2x4x2xui8>) {
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %q = nn.constant dense<0.25> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<0> : tensor<ui8> -> tensor<ui8>
  %z1 = nn.constant dense<1> : tensor<ui8> -> tensor<ui8>

  // CHECK: pool "" op="MaxPool" operands=[%0] results=[%1] kind=max kernel=[1, 2] strides=[1, 2] stage={low=0 high=255}
  %max = nn.op "MaxPool"(%x) opset 13 {kernel_shape = array<i64: 1, 2>, strides = array<i64: 1, 2>} : (tensor<1x2x2x4xui8>) -> tensor<1x2x2x2xui8>

  // 0.5 / (0.25 * 8), and eight zero points less.
  // CHECK: pool "" op="QLinearGlobalAveragePool" operands=[%0] results=[%2] kind=sum kernel=[2, 4]
  // CHECK-NEXT: stage={convert=true bias=[-8] multiplier=[0.25] low=0 high=255}
  %mean = nn.op "QLinearGlobalAveragePool"(%x, %s, %z1, %q, %z) domain "com.microsoft" opset 1 {} : (tensor<1x2x2x4xui8>, tensor<f32>, tensor<ui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x1x1xui8>
  %axes = nn.constant dense<[2, 3]> : tensor<2xi64> -> tensor<2xi64>

  // CHECK: reduce "" op="ReduceMax" operands=[%0] results=[%3] kind=max reduced=[false, false, true, true]
  // CHECK-NEXT: stage={low=0 high=255}
  %most = nn.op "ReduceMax"(%x, %axes) opset 18 {keepdims = 0 : i64} : (tensor<1x2x2x4xui8>, tensor<2xi64>) -> tensor<1x2xui8>
  %f = nn.op "DequantizeLinear"(%x, %s, %z) opset 13 {} : (tensor<1x2x2x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xf32>
  %g = nn.op "DequantizeLinear"(%y, %s, %z) opset 13 {} : (tensor<1x2x2x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xf32>

  // A chain of unary operators is one table: twice the byte, up to 255.
  // CHECK: lookup "" op="Abs" operands=[%0] results=[%4] table=#0
  %n = nn.op "Neg"(%f) opset 13 {} : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %a = nn.op "Abs"(%n) opset 13 {} : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %table = nn.op "QuantizeLinear"(%a, %q, %z) opset 13 {} : (tensor<1x2x2x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xui8>

  // Proven over all pairs: the machine's addition gives every byte.
  // CHECK: binary "" op="Add" operands=[%0, %5] results=[%6] second={kind=add low=0 high=255}
  %sum = nn.op "Add"(%f, %g) opset 13 {} : (tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %add = nn.op "QuantizeLinear"(%sum, %s, %z) opset 13 {} : (tensor<1x2x2x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xui8>

  // CHECK: binary "" op="Max" operands=[%0, %5] results=[%7] second={kind=max low=0 high=255}
  %larger = nn.op "Max"(%f, %g) opset 13 {} : (tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %maximum = nn.op "QuantizeLinear"(%larger, %s, %z) opset 13 {} : (tensor<1x2x2x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xui8>

  // CHECK: concat "" op="Concat" operands=[%0, %5] results=[%8] axis=1 tables={{\[\[\], \[\]\]}}
  %cat = nn.op "Concat"(%x, %y) opset 13 {axis = 1 : i64} : (tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>) -> tensor<1x4x2x4xui8>

  // CHECK: binary "" op="QLinearMul" operands=[%0, %5] results=[%9] second={kind=mul zx=1 low=0 high=255}
  %mul = nn.op "QLinearMul"(%x, %s, %z1, %y, %s, %z, %q, %z) domain "com.microsoft" opset 1 {} : (tensor<1x2x2x4xui8>, tensor<f32>, tensor<ui8>, tensor<1x2x2x4xui8>, tensor<f32>, tensor<ui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xui8>

  // Sums by a power of two; ReLU is a bound.
  // CHECK: requantise "" op="QuantizeLinear" operands=[%10] results=[%11]
  // CHECK-NEXT: stage={convert=true multiplier=[0.5] low=0 high=254 zero=1}
  %fs = nn.op "DequantizeLinear"(%sums, %q) opset 13 {} : (tensor<1x2x2x4xi32>, tensor<f32>) -> tensor<1x2x2x4xf32>
  %relu = nn.op "Relu"(%fs) opset 13 {} : (tensor<1x2x2x4xf32>) -> tensor<1x2x2x4xf32>
  %bytes = nn.op "QuantizeLinear"(%relu, %s, %z1) opset 13 {} : (tensor<1x2x2x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x4xui8>

  // CHECK: move "" op="Transpose" operands=[%11] results=[%12]
  // CHECK-NEXT: steps=[{{\[}}{kind=transpose extents=[1, 2, 4, 2] numbers=[0, 1, 3, 2]}]]
  %turned = nn.op "Transpose"(%bytes) opset 13 {perm = array<i64: 0, 1, 3, 2>} : (tensor<1x2x2x4xui8>) -> tensor<1x2x4x2xui8>
  return %max, %mean, %most, %table, %add, %maximum, %cat, %mul, %bytes, %turned : tensor<1x2x2x2xui8>, tensor<1x2x1x1xui8>, tensor<1x2xui8>, tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x4x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x2x2x4xui8>, tensor<1x2x4x2xui8>
}

// CHECK: #0 = u8 "0x00020406080a0c0e10
