// SPDX-License-Identifier: Apache-2.0
// Signed integers to IEEE 754 binary32, rounded half to even: value_i -> result_o; 0 becomes +0. Method: magnitude,
// normalise, round. Up to 25 bits (24 and the sign) the conversion is exact.
//
// Registers: bit 0 after normalising, bit 1 after rounding. Latency: the number of ones, in enabled cycles; 0 is
// combinational. Throughput: one result a lane and cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every
// register. Reset: rst_ni, synchronous, clears the valid bits. result_o is unspecified where valid_o = 0; idle stages
// are not evaluated in simulation. Legal: 2 <= Width <= 64; Rounding = 0, other values are for tests (tsr_fp32_mul).

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_int_to_fp32 #(
  parameter int unsigned Lanes     = 1,
  parameter int unsigned Width     = 32,
  parameter logic [1:0]  Registers = 2'b00,
  parameter int unsigned Rounding  = 0
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  logic                   enable_i,
  input  logic                   valid_i,
  input  logic [Width*Lanes-1:0] value_i,
  output logic                   valid_o,
  output logic [32*Lanes-1:0]    result_o
);

  // Stage 0: magnitude with room for a guard and a sticky bit, normalised (the steps of tsr_fp32_product, without a
  // limit). Leaves what rounding takes, 64 bits a lane: see tsr_fp32_mul.
  localparam int unsigned Room = Width < 27 ? 27 : Width;

  logic valid_1;
  logic [64*Lanes-1:0] unrounded_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );

  function automatic logic [63:0] normalise(input logic [Width-1:0] signed_value);
    /* verilator no_inline_task */
    logic [Width-1:0] value;
    logic [Room-1:0]  significand;
    logic [5:0]       shift, amount;
    value = (signed_value ^ {Width{signed_value[Width-1]}}) + Width'(signed_value[Width-1]);
    significand = Room'(value) << (Room - Width);
    shift = 6'd0;
    for (int unsigned k = 0; k < 6; k++) begin
      if ((32 >> k) < Room) begin
        amount = {(significand >> (Room - (32 >> k))) == '0, 5'd0} >> k;
        significand = significand << amount;
        shift = shift | amount;
      end
    end
    normalise = {28'd0, signed_value[Width-1], 9'(127 + Width - 1) - {3'd0, shift},
                 significand[Room-1-:25], significand[Room-26:0] != '0};
  endfunction

  logic [64*Lanes-1:0] unrounded_1_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) unrounded_1_d = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) unrounded_1_d[64*l+:64] = normalise(value_i[Width*l+:Width]);
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[0]))) u_unrounded_1 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(unrounded_1_d), .data_o(unrounded_1)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );

  // Stage 1: round and pack.
  function automatic logic [31:0] round(input logic [37:0] unrounded);
    /* verilator no_inline_task */
    logic [25:0] significand;
    logic        round_up, is_infinite;
    logic [31:0] magnitude;  // exponent field of 9 bits and fraction
    significand = unrounded[25:0];
    round_up = significand[1] & (significand[0] | significand[2]);
    if (Rounding == 1) round_up = 1'b0;
    if (Rounding == 2) round_up = significand[1];
    magnitude = {significand[25] ? unrounded[34:26] : 9'd0, significand[24:2]} + 32'(round_up);
    is_infinite = unrounded[37] | (magnitude[31:23] >= 9'd255);
    magnitude = {unrounded[35], is_infinite ? 31'h7f800000 : magnitude[30:0]};
    round = unrounded[36] ? 32'h7fc00000 : magnitude;
  endfunction

  logic [32*Lanes-1:0] result_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) result_d = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) result_d[32*l+:32] = round(unrounded_1[64*l+:38]);
    end
  end
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[1]))) u_result (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(result_d), .data_o(result_o)
  );

endmodule
/* verilator lint_on LATCH */
