// SPDX-License-Identifier: Apache-2.0
// The end of a shift to fixed point, for a vector of lanes: a signed number with 25 fraction bits is shifted right by 0
// to 15. Leaves: 10 integer bits and 25 fraction bits; lost: a bit shifted out, or lost_i, is 1; far: the number does
// not fit, or far_i. The upper bit of fixed_o is the number's sign in any case.
//
// Method: two choices of four. A bit left out on the upper side makes the number far unless it is the sign.
// Combinational; a vector that is not valid is not evaluated in simulation. Legal: Width 38 to 50.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_shift_sticky #(
  parameter int unsigned Lanes = 1,
  parameter int unsigned Width = 50
) (
  input  logic                   valid_i,
  input  logic [Width*Lanes-1:0] number_i,
  input  logic [4*Lanes-1:0]     shift_i,
  input  logic [Lanes-1:0]       lost_i,
  input  logic [Lanes-1:0]       far_i,
  output logic [35*Lanes-1:0]    fixed_o,
  output logic [Lanes-1:0]       lost_o,
  output logic [Lanes-1:0]       far_o
);

  always_comb begin
    logic [49:0] number;
    logic [36:0] fours;
    logic [3:0] shift;
    logic sign;
    if (!tsr_isa_pkg::Simulated) fixed_o = 'x;
    if (!tsr_isa_pkg::Simulated) lost_o = 'x;
    if (!tsr_isa_pkg::Simulated) far_o = 'x;
    number = 'x;
    fours = 'x;
    shift = 'x;
    sign = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        number = 50'($signed(number_i[Width*l+:Width]));
        shift = shift_i[4*l+:4];
        sign = number[49];
        case (shift[3:2])
          2'd0: fours = number[36:0];
          2'd1: fours = number[40:4];
          2'd2: fours = number[44:8];
          default: fours = number[48:12];
        endcase
        case (shift[1:0])
          2'd0: fixed_o[35*l+:35] = {sign, fours[33:0]};
          2'd1: fixed_o[35*l+:35] = {sign, fours[34:1]};
          2'd2: fixed_o[35*l+:35] = {sign, fours[35:2]};
          default: fixed_o[35*l+:35] = {sign, fours[36:3]};
        endcase
        lost_o[l] = lost_i[l] || ((shift[3] || shift[2]) && number[3:0] != 4'd0) || (shift[3] && number[7:4] != 4'd0) ||
            (shift[3] && shift[2] && number[11:8] != 4'd0) || ((shift[1] || shift[0]) && fours[0]) ||
            (shift[1] && fours[1]) || (shift[1] && shift[0] && fours[2]);
        far_o[l] = far_i[l] || (!(shift[3] && shift[2]) && number[48:45] != {4{sign}}) ||
            (!shift[3] && number[44:41] != {4{sign}}) || (!shift[3] && !shift[2] && number[40:37] != {4{sign}}) ||
            (!(shift[1] && shift[0]) && fours[36] != sign) || (!shift[1] && fours[35] != sign) ||
            (!shift[1] && !shift[0] && fours[34] != sign);
      end
    end
  end

endmodule
/* verilator lint_on LATCH */
