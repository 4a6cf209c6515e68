// SPDX-License-Identifier: Apache-2.0
// The vectors that ROW_MAP writes. Enters: a vector's destination as the vector is taken, its groups at the lanes, and
// Behind cycles later their bytes. Leaves: the vector. Method: destination and turn wait in a delay line; the bytes of
// one group after another move into a register.
//
// take_i with target_i; valid_i with turn_i: groups, from the next cycle on. Latency: Behind + 1 cycles from a vector's
// last group to its write. Throughput: a group a cycle. Back-pressure: none, writes are always granted. Reset:
// synchronous, active low, to no write. Legal: as tsr_rows.
module tsr_row_write #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned RowLanes = 4,
  parameter int unsigned Behind   = 13,  // cycles from a group to its bytes
  localparam int unsigned Turns = BlockOut / RowLanes,
  localparam int unsigned TurnBits = $clog2(Turns)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  take_i,
  input  logic [13:0]           target_i,
  input  logic                  valid_i,
  input  logic [TurnBits-1:0]   turn_i,
  input  logic [8*RowLanes-1:0] bytes_i,
  output logic                  we_o,
  output logic [13:0]           addr_o,
  output logic [8*BlockOut-1:0] wdata_o
);

  logic [13:0] emit_target_q, target_last, write_address_q;
  logic [TurnBits-1:0] turn_last;
  logic valid_last, write_q;
  logic [8*BlockOut-1:0] made_q;
  tsr_delay #(.Width(TurnBits + 14), .Stages(Behind)) u_target (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(1'b1), .data_i({emit_target_q, turn_i}),
    .data_o({target_last, turn_last})
  );
  tsr_delay_valid #(.Stages(Behind)) u_target_valid (.clk_i, .rst_ni, .enable_i(1'b1), .valid_i, .valid_o(valid_last));
  always_ff @(posedge clk_i) begin
    if (!rst_ni) write_q <= 1'b0;
    else write_q <= valid_last && turn_last == TurnBits'(Turns - 1);
    if (take_i) emit_target_q <= target_i;
    if (valid_last) begin
      made_q <= {bytes_i, made_q[8*BlockOut-1:8*RowLanes]};
      write_address_q <= target_last;
    end
  end
  assign we_o = write_q;
  assign addr_o = write_address_q;
  assign wdata_o = made_q;

endmodule
