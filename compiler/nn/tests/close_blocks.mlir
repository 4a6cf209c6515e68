// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --nn-close-blocks --split-input-file | FileCheck %s

// Two blocks of 16: rows become int8 block by block, and weights are less the middle of their range.
// CHECK-LABEL: func.func @blocks
// CHECK: nn.op "ReduceMax"
// CHECK: nn.op "Round"
// CHECK: nn.constant dense<-123> : tensor<2x16x3xi8>
// CHECK: nn.op "MatMulInteger"({{.*}}) {{.*}} -> tensor<2x5x3xi32>
// CHECK: nn.op "Sub"({{.*}}) {{.*}} -> tensor<2x5x3xi32>
// CHECK: nn.op "ReduceSum"({{.*}}) {{.*}} -> tensor<5x3xf32>
// CHECK-NOT: MatMulNBits
func.func @blocks(%x: tensor<5x32xf32>) -> tensor<5x3xf32> {
  %w = nn.constant dense<5> : tensor<32x3xui8> -> tensor<32x3xui8>
  %s = nn.constant dense<0.5> : tensor<2x3xf32> -> tensor<2x3xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {axis = 0 : si64, block_size = 16 : si64} : (tensor<32x3xui8>, tensor<2x3xf32>) -> tensor<32x3xf32>
  %0 = nn.op "MatMul"(%x, %b) opset 21 {} : (tensor<5x32xf32>, tensor<32x3xf32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// -----

// Blocks of 8 have no kernel of integers.
// CHECK-LABEL: func.func @small_blocks
// CHECK: nn.op "MatMul"(
func.func @small_blocks(%x: tensor<5x32xf32>) -> tensor<5x3xf32> {
  %w = nn.constant dense<5> : tensor<32x3xi8> -> tensor<32x3xi8>
  %s = nn.constant dense<0.5> : tensor<4x3xf32> -> tensor<4x3xf32>
  %b = nn.op "DequantizeLinear"(%w, %s) opset 21 {axis = 0 : si64, block_size = 8 : si64} : (tensor<32x3xi8>, tensor<4x3xf32>) -> tensor<32x3xf32>
  %0 = nn.op "MatMul"(%x, %b) opset 21 {} : (tensor<5x32xf32>, tensor<32x3xf32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}
