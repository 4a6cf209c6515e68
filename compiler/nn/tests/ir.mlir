// SPDX-License-Identifier: Apache-2.0
// The dialect prints and parses: attributes, constants of every kind, absent operands, bodies that capture, sequences.
// RUN: tessera-opt %s | tessera-opt | FileCheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: {nn.dim_names = ["N", ""], nn.name = "x"}
func.func @main(%x: tensor<?x4xf32> {nn.name = "x", nn.dim_names = ["N", ""]}, %c: tensor<i1>) -> (tensor<?x4xf32> {nn.name = "y"}) {
  // CHECK: nn.constant dense<[1, -2, 3]> : tensor<3xi8> -> tensor<3xi8>
  %0 = nn.constant dense<[1, -2, 3]> : tensor<3xi8> -> tensor<3xi8>
  // CHECK: nn.constant dense<["a", "b"]> : tensor<2x!nn.string> -> tensor<2x!nn.string>
  %1 = nn.constant dense<["a", "b"]> : tensor<2x!nn.string> -> tensor<2x!nn.string>
  // CHECK: nn.constant dense_resource<big> : tensor<2xf32> -> tensor<2xf32>
  %2 = nn.constant dense_resource<big> : tensor<2xf32> -> tensor<2xf32>
  // CHECK: %[[NONE:.*]] = nn.none
  %none = nn.none
  // CHECK: nn.op "Clip"(%{{.*}}, %[[NONE]], %{{.*}}) opset 13 {} : (tensor<?x4xf32>, none, tensor<f32>) -> tensor<?x4xf32>
  %max = nn.constant dense<6.0> : tensor<f32> -> tensor<f32>
  %3 = nn.op "Clip"(%x, %none, %max) opset 13 {} : (tensor<?x4xf32>, none, tensor<f32>) -> tensor<?x4xf32>
  // CHECK: nn.op "LeakyRelu"(%{{.*}}) opset 13 {alpha = 1.000000e-01 : f32} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %4 = nn.op "LeakyRelu"(%3) opset 13 {alpha = 1.000000e-01 : f32} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: nn.op "If"(%{{.*}}) opset 13 {} bodies ["then_branch", "else_branch"] {
  // CHECK:   nn.return %{{.*}} : tensor<?x4xf32>
  // CHECK: }, {
  %5 = nn.op "If"(%c) opset 13 {} bodies ["then_branch", "else_branch"] {
    %6 = nn.op "Relu"(%4) opset 13 {} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    nn.return %6 : tensor<?x4xf32>
  }, {
    nn.return %4 : tensor<?x4xf32>
  } : (tensor<i1>) -> tensor<?x4xf32>
  // CHECK: nn.op "SequenceConstruct"(%{{.*}}) opset 13 {} : (tensor<?x4xf32>) -> !nn.sequence<tensor<?x4xf32>>
  %6 = nn.op "SequenceConstruct"(%5) opset 13 {} : (tensor<?x4xf32>) -> !nn.sequence<tensor<?x4xf32>>
  return %5 : tensor<?x4xf32>
}

{-# dialect_resources: { builtin: { big: "0x100000000000803F00000040" } } #-}
