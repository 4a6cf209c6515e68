// SPDX-License-Identifier: Apache-2.0
// Channels of PARAM beside a normalisation's groups of bytes. Enters: vectors that are taken, their groups, the loops'
// iterations. Leaves: a read of a vector's channels with its first group, then gain and bias of each group's lanes.
// Method: the address is that of an iteration of a loop, of the row as it begins or of the entry; it waits in a delay
// line.
//
// begin_i: a row begins; take_i: a vector is taken; valid_i with turn_i: its groups follow from the next cycle on, one
// a cycle. Latency: the read five cycles behind the group, gain_o and bias_o six; the memory answers in one cycle and
// keeps its answer. Throughput: a group a cycle. Back-pressure: none, reads are always granted. Reset: synchronous,
// active low. Legal: as tsr_rows. beside_i, with param_loop_i 7: param_addr_o is param_addr_i, where others read for
// rounding.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_row_channels #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned RowLanes = 4,
  localparam int unsigned Turns = BlockOut / RowLanes,
  localparam int unsigned TurnBits = $clog2(Turns)
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  logic                   normalise_i,
  input  logic                   beside_i,
  input  logic [2:0]             row_i,         // loops inside a row
  input  logic [2:0]             param_loop_i,  // whose iteration is the place
  input  logic [9:0]             param_addr_i,
  input  logic [71:0]            count_i,
  input  logic                   begin_i,
  input  logic                   take_i,
  input  logic                   valid_i,
  input  logic [TurnBits-1:0]    turn_i,
  output logic                   param_req_o,
  output logic [9:0]             param_addr_o,
  input  logic [64*BlockOut-1:0] param_rdata_i,
  output logic [18*RowLanes-1:0] gain_o,
  output logic [32*RowLanes-1:0] bias_o
);

  logic [9:0] param_address, param_count, param_row_q, emit_param_q, param_5;
  logic [TurnBits-1:0] turn_5, turn_6;
  logic valid_5;
  logic param_outer;  // the channels are those of the row
  assign param_outer = 4'(row_i) + 4'(param_loop_i) < 4'd6;
  always_comb begin
    param_count = param_loop_i[2] ? (param_loop_i[1] ? 10'd1 : param_loop_i[0] ? count_i[60+:10] : count_i[48+:10])
                                  : param_loop_i[1] ? (param_loop_i[0] ? count_i[36+:10] : count_i[24+:10])
                                                    : (param_loop_i[0] ? count_i[12+:10] : count_i[0+:10]);
    param_address = (param_outer ? param_row_q : param_count) + param_addr_i - 10'd1;
  end
  always_ff @(posedge clk_i) begin
    if (begin_i) param_row_q <= param_count;
    if (take_i || beside_i) emit_param_q <= param_address;
  end
  tsr_delay #(.Width(TurnBits + 10), .Stages(5)) u_channel (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(1'b1), .data_i({emit_param_q, turn_i}), .data_o({param_5, turn_5})
  );
  tsr_delay_valid #(.Stages(5)) u_channel_valid (.clk_i, .rst_ni, .enable_i(1'b1), .valid_i, .valid_o(valid_5));
  always_ff @(posedge clk_i) turn_6 <= turn_5;
  assign param_req_o = normalise_i && valid_5 && turn_5 == '0;
  assign param_addr_o = param_5;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) {gain_o, bias_o} = 'x;
    if (!tsr_isa_pkg::Simulated || normalise_i) begin
      for (int unsigned l = 0; l < RowLanes; l++) begin
        gain_o[18*l+:18] = param_rdata_i[32*(BlockOut+l)+:18];
        bias_o[32*l+:32] = param_rdata_i[32*l+:32];
        for (int unsigned t = 1; t < Turns; t++) begin
          if (turn_6 == TurnBits'(t)) begin
            gain_o[18*l+:18] = param_rdata_i[32*(BlockOut+RowLanes*t+l)+:18];
            bias_o[32*l+:32] = param_rdata_i[32*(RowLanes*t+l)+:32];
          end
        end
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, count_i};

endmodule
/* verilator lint_on LATCH */
