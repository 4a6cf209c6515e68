// SPDX-License-Identifier: Apache-2.0
// Second operation of the ALU for a vector of lanes: two integers x and y -> integer, with its own rounding and
// saturation.
//   add: g = fma(float(x), rx, fma(float(y), ry, f))
//   mul: p = float((x - zx) * (y - zy)), the product modulo 2^32;  g = fused ? fma(p, rx, f) : round(round(p * rx) + f)
//   max: g = float(max(x, y)), or min with the flag
//   value_o = (g is NaN ? low : RNE(clamp(g, low, high))) + zero, the exact 17-bit sum
// Method: integer front, two converters, two tsr_fp32_fma in a row, tsr_fp32_round_clamp. The first fma computes the
// inner term of add, the rounded product of the unfused mul (p * rx + -0), or hands a number through (p * 1 + -0); the
// second one does the rest.
//
// Everything enters with the vector and travels with it: x_i and y_i of each lane; operation and constants, common to
// all lanes; so vectors of different instructions may follow one another in any cycle. operation_i: 1 add, 2 mul, 3 max
// (second_op of the ISA); 0 counts as max.
// Registers: bit 0 after the integer front, bits 1 and 2 those of tsr_int_to_fp32, bits 3 to 8 those of the first and 9
// to 14 of the second tsr_fp32_fma, bits 15 and 16 those of tsr_fp32_round_clamp, bit 17 after the zero point; Trailing
// more behind it. Latency: the number of ones and Trailing, in enabled cycles; 0 is combinational. Throughput: one vector a cycle. Back-pressure: a pure
// pipeline, enable_i = 0 holds every register. Reset: rst_ni, synchronous, clears the valid bits. value_o is
// unspecified where valid_o = 0; idle stages are not evaluated in simulation. Legal: Rounding = 0, other values are for
// tests. low_i > high_i gives high_i (tsr_fp32_round_clamp).

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_second_op #(
  parameter int unsigned Lanes     = 1,
  parameter logic [17:0] Registers = 18'd0,
  parameter int unsigned Rounding  = 0,
  parameter int unsigned Trailing  = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic [1:0]          operation_i,
  input  logic                fused_i,
  input  logic                minimum_i,
  input  logic [31:0]         rx_i,
  input  logic [31:0]         ry_i,
  input  logic [31:0]         f_i,
  input  logic signed [15:0]  low_i,
  input  logic signed [15:0]  high_i,
  input  logic signed [15:0]  zero_i,
  input  logic signed [15:0]  zx_i,
  input  logic signed [15:0]  zy_i,
  input  logic                valid_i,
  input  logic [17*Lanes-1:0] x_i,
  input  logic [17*Lanes-1:0] y_i,
  output logic                valid_o,
  output logic [17*Lanes-1:0] value_o
);

  logic valid_z, unused_busy;
  logic [17*Lanes-1:0] value_z;

  localparam int unsigned ToFirst = 32'(Registers[0]) + 32'(Registers[1]) + 32'(Registers[2]);
  localparam int unsigned FirstLatency = 32'(Registers[3]) + 32'(Registers[4]) + 32'(Registers[5]) + 32'(Registers[6])
                                       + 32'(Registers[7]) + 32'(Registers[8]);
  localparam int unsigned ToRound = ToFirst + FirstLatency + 32'(Registers[9]) + 32'(Registers[10])
                                  + 32'(Registers[11]) + 32'(Registers[12]) + 32'(Registers[13]) + 32'(Registers[14]);
  localparam int unsigned ToZero = ToRound + 32'(Registers[15]) + 32'(Registers[16]);
  localparam logic [1:0] Add = 2'd1, Mul = 2'd2;
  localparam logic [31:0] One = 32'h3f800000, MinusZero = 32'h80000000;

  logic valid_1, valid_2, add_1, unused_y_valid;
  logic [32*Lanes-1:0] main_1, main_2, y_number_2;
  logic [17*Lanes-1:0] y_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );

  // Stage 0: the integer that feeds the first converter (x, the product, or the larger one).
  logic [32*Lanes-1:0] main_1_d;

  always_comb begin
    logic signed [16:0] x, y;
    logic signed [17:0] x_difference, y_difference;
    if (!tsr_isa_pkg::Simulated) main_1_d = 'x;
    x            = 'x;
    y            = 'x;
    x_difference = 'x;
    y_difference = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        x = x_i[17*l+:17];
        y = y_i[17*l+:17];
        x_difference = 18'(x) - 18'(zx_i);
        y_difference = 18'(y) - 18'(zy_i);
        if (operation_i == Mul) main_1_d[32*l+:32] = 32'(x_difference) * 32'(y_difference);
        else if (operation_i == Add) main_1_d[32*l+:32] = 32'(x);
        else main_1_d[32*l+:32] = (x < y) == minimum_i ? 32'(x) : 32'(y);
      end
    end
  end
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[0]))) u_main_1 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(main_1_d), .data_o(main_1)
  );
  tsr_pipe #(.Width(17 * Lanes + 1), .Enabled(32'(Registers[0]))) u_y_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i({operation_i == Add, y_i}), .data_o({add_1, y_1})
  );

  tsr_int_to_fp32 #(.Lanes(Lanes), .Width(32), .Registers(Registers[2:1]), .Rounding(Rounding)) u_convert_main (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .value_i(main_1), .valid_o(valid_2), .result_o(main_2)
  );
  tsr_int_to_fp32 #(.Lanes(Lanes), .Width(17), .Registers(Registers[2:1]), .Rounding(Rounding)) u_convert_y (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1 & add_1), .value_i(y_1), .valid_o(unused_y_valid),
    .result_o(y_number_2)
  );

  // First fma.
  logic [32*Lanes-1:0] first_x, first_3, main_3;
  logic [31:0] first_y, first_z, rx_2, ry_2, f_2;
  logic [1:0]  operation_2;
  logic        valid_3, fused_2;

  tsr_delay #(.Width(99), .Stages(ToFirst)) u_constants_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i({operation_i, fused_i, rx_i, ry_i, f_i}),
    .data_o({operation_2, fused_2, rx_2, ry_2, f_2})
  );

  assign first_x = operation_2 == Add ? y_number_2 : main_2;
  always_comb begin
    first_y = One;
    first_z = MinusZero;
    if (operation_2 == Add) begin
      first_y = ry_2;
      first_z = f_2;
    end else if (operation_2 == Mul && !fused_2) begin
      first_y = rx_2;
    end
  end

  tsr_fp32_fma #(.Lanes(Lanes), .Registers(Registers[8:3]), .Rounding(Rounding)) u_first (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .x_i(first_x), .y_i({Lanes{first_y}}), .z_i({Lanes{first_z}}),
    .valid_o(valid_3), .result_o(first_3)
  );
  tsr_delay #(.Width(32 * Lanes), .Stages(FirstLatency)) u_main (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .data_i(main_2), .data_o(main_3)
  );

  // Second fma.
  logic [32*Lanes-1:0] second_x, second_z, second_4;
  logic [31:0] second_y, rx_3, f_3;
  logic [1:0]  operation_3;
  logic        valid_4, fused_3;

  tsr_delay #(.Width(67), .Stages(FirstLatency)) u_constants_3 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .data_i({operation_2, fused_2, rx_2, f_2}),
    .data_o({operation_3, fused_3, rx_3, f_3})
  );

  always_comb begin
    second_x = first_3;
    second_y = One;
    second_z = {Lanes{MinusZero}};
    if (operation_3 == Add) begin
      second_x = main_3;
      second_y = rx_3;
      second_z = first_3;
    end else if (operation_3 == Mul) begin
      second_y = fused_3 ? rx_3 : One;
      second_z = {Lanes{f_3}};
    end
  end

  tsr_fp32_fma #(.Lanes(Lanes), .Registers(Registers[14:9]), .Rounding(Rounding)) u_second (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_3), .x_i(second_x), .y_i({Lanes{second_y}}), .z_i(second_z),
    .valid_o(valid_4), .result_o(second_4)
  );

  // Round, saturate, zero point.
  logic valid_5;
  logic signed [15:0] low_4, high_4, zero_5;
  logic [16*Lanes-1:0] rounded_5;

  tsr_delay #(.Width(32), .Stages(ToRound)) u_bounds (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i({low_i, high_i}), .data_o({low_4, high_4})
  );
  tsr_delay #(.Width(16), .Stages(ToZero)) u_zero (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(zero_i), .data_o(zero_5)
  );
  tsr_fp32_round_clamp #(.Lanes(Lanes), .Registers(Registers[16:15]), .Rounding(Rounding)) u_round (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_4), .value_i(second_4), .low_i(low_4), .high_i(high_4),
    .valid_o(valid_5), .result_o(rounded_5)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[17]))) u_valid_17 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_5), .valid_o(valid_z)
  );

  logic [17*Lanes-1:0] value_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) value_d = 'x;
    if (valid_5) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        value_d[17*l+:17] = {rounded_5[16*l+15], rounded_5[16*l+:16]} + 17'(zero_5);
      end
    end
  end
  tsr_pipe #(.Width(17 * Lanes), .Enabled(32'(Registers[17]))) u_value (
    .clk_i, .enable_i(enable_i & valid_5), .data_i(value_d), .data_o(value_z)
  );
  tsr_retime #(.Width(17 * Lanes), .Stages(Trailing)) u_trailing (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_z), .data_i(value_z), .valid_o, .data_o(value_o), .busy_o(unused_busy)
  );

endmodule
/* verilator lint_on LATCH */
