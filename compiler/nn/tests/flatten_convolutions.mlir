// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-flatten-convolutions --split-input-file | FileCheck %s

// Planes that the kernel meets in depth become channels, and depth a batch. What is padded has the zero point.
// CHECK-LABEL: func.func @planes
// CHECK: %[[Z:.*]] = nn.constant dense<7> : tensor<i8>
// CHECK: %[[P:.*]] = nn.op "Pad"(%arg0, %{{.*}}, %[[Z]]) {{.*}} -> tensor<1x2x5x4x4xi8>
// CHECK-COUNT-2: nn.op "Slice"(%[[P]], {{.*}} -> tensor<1x2x4x4x4xi8>
// CHECK: nn.op "Concat"
// CHECK: %[[Y:.*]] = nn.op "QLinearConv"({{.*}}) {{.*}}pads = array<i64: 1, 0, 1, 0>{{.*}} -> tensor<4x3x4x4xi8>
// CHECK: nn.op "Transpose"({{.*}}) {{.*}} -> tensor<1x3x4x4x4xi8>
func.func @planes(%x: tensor<1x2x3x4x4xi8>) -> tensor<1x3x4x4x4xi8> {
  %w = nn.constant dense<3> : tensor<3x2x2x3x1xi8> -> tensor<3x2x2x3x1xi8>
  %s = nn.constant dense<0.5> : tensor<f32> -> tensor<f32>
  %z = nn.constant dense<7> : tensor<i8> -> tensor<i8>
  %0 = nn.constant dense<0> : tensor<i8> -> tensor<i8>
  %1 = nn.op "QLinearConv"(%x, %s, %z, %w, %s, %0, %s, %z) opset 10 {pads = array<i64: 1, 1, 0, 1, 1, 0>} : (tensor<1x2x3x4x4xi8>, tensor<f32>, tensor<i8>, tensor<3x2x2x3x1xi8>, tensor<f32>, tensor<i8>, tensor<f32>, tensor<i8>) -> tensor<1x3x4x4x4xi8>
  return %1 : tensor<1x3x4x4x4xi8>
}

// -----

// Two dimensions stay as they are.
// CHECK-LABEL: func.func @flat
// CHECK-NEXT: nn.constant
// CHECK-NEXT: nn.op "ConvInteger"(%arg0,
// CHECK-NEXT: return
func.func @flat(%x: tensor<1x2x4x4xi8>) -> tensor<1x3x4x4xi32> {
  %w = nn.constant dense<3> : tensor<3x2x1x1xi8> -> tensor<3x2x1x1xi8>
  %0 = nn.op "ConvInteger"(%x, %w) opset 10 {} : (tensor<1x2x4x4xi8>, tensor<3x2x1x1xi8>) -> tensor<1x3x4x4xi32>
  return %0 : tensor<1x3x4x4xi32>
}
