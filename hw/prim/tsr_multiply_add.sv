// SPDX-License-Identifier: Apache-2.0
// x * y + addend in 48 bits: 25 by 18 bits, signed; what leaves 48 bits is lost. With all registers it is one DSP slice
// of 7 series.
//
// Registers: bit 0 the factors, 1 the product and the addend, 2 the sum. So the addend enters behind the factors by
// bit 0. Latency: the number of ones, in enabled cycles. Throughput: one a cycle. Back-pressure: enable_i = 0 holds every
// register. Reset: none, data only.
module tsr_multiply_add #(
  parameter logic [2:0] Registers = 3'd0
) (
  input  logic               clk_i,
  input  logic               enable_i,
  input  logic signed [24:0] x_i,
  input  logic signed [17:0] y_i,
  input  logic signed [47:0] addend_i,
  output logic signed [47:0] sum_o
);

  logic signed [24:0] x;
  logic signed [17:0] y;
  logic signed [42:0] product_1, product_2;
  logic signed [47:0] addend_2, sum_2;
  if (Registers[0]) begin : gen_register_0
    always_ff @(posedge clk_i) begin
      if (enable_i) begin
        x <= x_i;
        y <= y_i;
      end
    end
  end else begin : gen_wire_0
    assign x = x_i;
    assign y = y_i;
  end
  assign product_1 = x * y;
  if (Registers[1]) begin : gen_register_1
    always_ff @(posedge clk_i) begin
      if (enable_i) begin
        product_2 <= product_1;
        addend_2 <= addend_i;
      end
    end
  end else begin : gen_wire_1
    assign product_2 = product_1;
    assign addend_2 = addend_i;
  end
  assign sum_2 = 48'(product_2) + addend_2;
  if (Registers[2]) begin : gen_register_2
    always_ff @(posedge clk_i) begin
      if (enable_i) sum_o <= sum_2;
    end
  end else begin : gen_wire_2
    assign sum_o = sum_2;
  end

  logic unused;
  assign unused = &{1'b0, clk_i, enable_i};

endmodule
