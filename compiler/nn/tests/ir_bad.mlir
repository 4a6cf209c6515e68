// SPDX-License-Identifier: Apache-2.0
// RUN: tessera-opt %s --split-input-file --verify-diagnostics

func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{operator Rellu of opset 13 is not known}}
  %0 = nn.op "Rellu"(%x) opset 13 {} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @operand_count(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{has 1 inputs where the operator takes 2}}
  %0 = nn.op "Add"(%x) opset 13 {} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @element_type(%x: tensor<4xi7>) -> tensor<4xi7> {
  // expected-error@+1 {{operand of type 'tensor<4xi7>', which no ONNX value has}}
  %0 = nn.op "Identity"(%x) opset 13 {} : (tensor<4xi7>) -> tensor<4xi7>
  return %0 : tensor<4xi7>
}

// -----

func.func @constant_type() -> tensor<3xf32> {
  // expected-error@+1 {{result type differs from that of the value}}
  %0 = nn.constant dense<1.0> : tensor<2xf32> -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
