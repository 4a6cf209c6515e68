// SPDX-License-Identifier: Apache-2.0
// tsr_requantise as a simulator likes it: the same ports, results and latency, without its stages. A result is computed
// when its vector enters, and waits in a delay line. hw/synth/check.py proves both equal, and tests/alu_arithmetic
// compares both with the host. tsr_alu takes this one under Verilator and tsr_requantise in synthesis.
//
// Method: that of tsr_requantise and tsr_round_saturate, a lane after the other in words of 32 and 64 bits. Verilator
// leaves the loop over the lanes to the C++ compiler, because its end is a variable; the compiler makes vectors of it.
//
// Latency: the number of ones in Registers, and Trailing, in enabled cycles. Throughput: one vector a cycle.
// Back-pressure: enable_i = 0 holds. Reset: rst_ni, synchronous, clears the valid bits. value_o is unspecified where
// valid_o = 0; a vector that is not valid is not evaluated in simulation. Legal: low_i <= high_i.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_requantise_plain #(
  parameter int unsigned Lanes     = 1,
  parameter logic [8:0]  Registers = 9'd0,
  parameter int unsigned Trailing  = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic signed [9:0]   low_i,
  input  logic signed [9:0]   high_i,
  input  logic signed [8:0]   zero_i,
  input  logic                valid_i,
  input  logic                convert_i,
  input  logic [32*Lanes-1:0] value_i,
  input  logic [32*Lanes-1:0] bias_i,
  input  logic [32*Lanes-1:0] scale_i,
  output logic                valid_o,
  output logic [11*Lanes-1:0] value_o
);

  localparam int unsigned Latency = $countones(Registers) + Trailing;
  localparam logic [31:0] One = 32'h3f800000;         // 1.0
  localparam logic [31:0] Lowest = 32'h80000000;      // below all bounds
  localparam logic [31:0] Highest = 32'h7fffffff;

  logic [31:0] values[Lanes], biases[Lanes], scales[Lanes], results[Lanes];
  logic [11*Lanes-1:0] result;
  always_comb begin
    logic [63:0] rounded, factor, product, sign, fixed;
    logic [31:0] sum, dropped, scale, exponent, shift, distance, whole, wide;
    logic [31:0] low, high, zero, convert;
    logic [5:0] left, right, reach;
    logic negate, special, nan, half, lost, far, near, up;
`ifdef VERILATOR
    int unsigned lanes;
    lanes = Lanes;
`else
    localparam int unsigned lanes = Lanes;
`endif
    if (!tsr_isa_pkg::Simulated) result = 'x;
    for (int unsigned l = 0; l < Lanes; l++) begin
      if (!tsr_isa_pkg::Simulated) values[l] = 'x;
      if (!tsr_isa_pkg::Simulated) biases[l] = 'x;
      if (!tsr_isa_pkg::Simulated) scales[l] = 'x;
      if (!tsr_isa_pkg::Simulated) results[l] = 'x;
    end
    rounded = 'x;
    factor = 'x;
    product = 'x;
    sign = 'x;
    fixed = 'x;
    sum = 'x;
    dropped = 'x;
    scale = 'x;
    exponent = 'x;
    shift = 'x;
    distance = 'x;
    whole = 'x;
    wide = 'x;
    left = 'x;
    right = 'x;
    reach = 'x;
    negate = 'x;
    special = 'x;
    nan = 'x;
    half = 'x;
    lost = 'x;
    far = 'x;
    near = 'x;
    up = 'x;
    low = 32'(low_i);
    high = 32'(high_i);
    zero = 32'(zero_i);
    convert = {32{convert_i}};
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        values[l] = value_i[32*l+:32];
        biases[l] = bias_i[32*l+:32];
        scales[l] = scale_i[32*l+:32];
      end
      for (int unsigned l = 0; l < lanes; l++) begin
        // The sum, rounded to 24 significant bits. dropped: the bits below them.
        sum = values[l] + (biases[l] & convert);
        dropped = (sum ^ {32{sum[31]}}) >> 24;
        dropped = dropped | (dropped >> 1);
        dropped = dropped | (dropped >> 2);
        dropped = dropped | (dropped >> 4);
        rounded = {{32{sum[31]}}, sum} + {32'd0, dropped >> 1} +
            64'(dropped[0] && (sum & (dropped + 32'd1)) != 32'd0);
        rounded = rounded & ~{32'd0, dropped};
        // The scale's parts. shift: 136 - E, of which 64 and more lose as much as 48 and more.
        scale = (scales[l] & convert) | (One & ~convert);
        exponent = (scale >> 23) & 32'hff;
        negate = scale[31];
        special = exponent == 32'hff;
        nan = special && (scale & 32'h7fffff) != 32'd0;
        factor = {32'd0, (scale & 32'h7fffff) | (exponent != 32'd0 ? 32'h800000 : 32'd0) |
                  (special ? 32'h400000 : 32'd0)};
        shift = exponent >= 32'd136 ? 32'd0 : 32'd136 - exponent;
        shift = shift >= 32'd64 ? 32'd48 | (shift & 32'd15) : shift;
        // The product with 25 fraction bits. lost: a bit shifted out is 1; far: its integer part has more than 10 bits.
        product = rounded * factor;
        sign = {64{product[63]}};
        left = shift < 32'd11 ? 6'(32'd11 - shift) : 6'd0;
        right = shift > 32'd11 ? 6'(shift - 32'd11) : 6'd0;
        reach = shift > 32'd40 ? 6'd63 : 6'(shift + 32'd23);
        fixed = 64'($signed(product << left) >>> right);
        lost = (product & ~(~64'd0 << right)) != 64'd0;
        far = 64'($signed(product) >>> reach) != sign;
        // To an integer, with the distance from a tie and how near to one is one (tsr_round_saturate).
        whole = (32'(fixed >> 25) & 32'h1ff) | (sign[31:0] & ~32'h1ff);
        half = fixed[24];
        distance = (fixed[31:0] ^ (half ? 32'd0 : 32'hffffff)) & 32'hffffff;
        wide = (whole ^ sign[31:0]) & 32'h1ff;
        wide = wide | (wide >> 1);
        wide = wide | (wide >> 2);
        wide = wide | (wide >> 4);
        wide = wide | (wide >> 8);
        near = (distance & ~wide) == 32'd0 || (half && !lost && distance == wide + 32'd1);
        up = near ? whole[0] : half;
        whole = whole + {31'd0, up};
        // Its sign, the bounds, the zero point.
        whole = (whole ^ {32{negate}}) + {31'd0, negate};
        whole = !far ? whole : sign[0] != negate ? Lowest : Highest;
        whole = nan || (special && !far) ? Lowest : whole;
        whole = $signed(whole) > $signed(high) ? high : $signed(whole) < $signed(low) ? low : whole;
        results[l] = whole + zero;
      end
      for (int unsigned l = 0; l < Lanes; l++) result[11*l+:11] = results[l][10:0];
    end
  end

  tsr_delay #(.Width(11 * Lanes), .Stages(Latency)) u_value (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(result), .data_o(value_o)
  );
  tsr_delay_valid #(.Stages(Latency)) u_valid (.clk_i, .rst_ni, .enable_i, .valid_i, .valid_o);

endmodule
/* verilator lint_on LATCH */
