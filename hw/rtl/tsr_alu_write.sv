// SPDX-License-Identifier: Apache-2.0
// The vector engine's write. Enters: the vector that ends one of the three paths (at most one in a cycle), its
// destination, what rows write. Leaves: words for ACC, bytes for OUT and INP.
//
// Latency: one cycle. Back-pressure: enable_i = 0, of a refused write, holds. Reset: synchronous, active low, of what is
// valid.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_alu_write #(
  parameter int unsigned Lanes       = 8,
  parameter int unsigned SecondLanes = 8,
  parameter int unsigned RowLanes    = 0
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  logic                     enable_i,
  input  logic                     raw_valid_i,
  input  logic [32*Lanes-1:0]      raw_i,
  input  logic                     first_valid_i,
  input  logic [11*Lanes-1:0]      first_i,
  output logic                     early_valid_o,  // either of both, and the last lanes' bytes
  output logic [8*SecondLanes-1:0] early_bytes_o,
  input  logic                     second_valid_i,
  input  logic [8*Lanes-1:0]       second_bytes_i,  // a cycle later; in the last lanes those of early_bytes_o, too
  // Rows.
  input  logic                     rows_i,
  input  logic [127:0]             rows_scalars_i,
  input  logic [8*Lanes-1:0]       rows_bytes_i,
  // The write.
  output logic                     valid_o,
  output logic                     again_o,  // the same, of a register of its own
  output logic [32*Lanes-1:0]      words_o,
  output logic [8*Lanes-1:0]       bytes_o
);

  localparam bit Rows = RowLanes != 0;

  logic write_q, idle_q, second_q;
  logic [32*Lanes-1:0] words, words_q;
  assign early_valid_o = raw_valid_i || first_valid_i;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) words = 'x;
    if (Rows && rows_i) begin
      words = (32 * Lanes)'(rows_scalars_i);
    end else if (early_valid_o) begin
      if (raw_valid_i) begin
        words = raw_i;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) words[32*l+:32] = 32'($signed(first_i[11*l+:11]));
      end
    end
  end
  always_comb begin
    for (int unsigned l = 0; l < SecondLanes; l++) early_bytes_o[8*l+:8] = words[32*(Lanes-SecondLanes+l)+:8];
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q <= 1'b0;
      idle_q <= 1'b1;
    end else if (enable_i) begin
      write_q <= early_valid_o || second_valid_i;
      idle_q <= !(early_valid_o || second_valid_i);
    end
  end
  always_ff @(posedge clk_i) begin
    if ((enable_i && early_valid_o) || (Rows && rows_i)) words_q <= words;
    if (enable_i && (early_valid_o || second_valid_i)) second_q <= second_valid_i;
  end

  assign valid_o = write_q;
  assign again_o = !idle_q;  // of the complement, which synthesis does not take for the other one
  assign words_o = words_q;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) bytes_o = 'x;
    if (Rows && rows_i) begin
      bytes_o = rows_bytes_i;
    end else if (write_q) begin
      bytes_o = second_bytes_i;
      if (!second_q) begin
        for (int unsigned l = SecondLanes; l < Lanes; l++) bytes_o[8*(l-SecondLanes)+:8] = words_q[32*(l-SecondLanes)+:8];
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, rows_i, rows_scalars_i, rows_bytes_i};

endmodule
/* verilator lint_on LATCH */
