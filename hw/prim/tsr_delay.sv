// SPDX-License-Identifier: Apache-2.0
// A delay line: data_i leaves at data_o after Stages enabled clocks. It carries what travels beside an arithmetic unit
// (an operand of a later unit, a constant of the instruction) over that unit's latency. Method: one or two stages are
// registers, more are a small memory that is read and written at one rotating address (distributed RAM on FPGAs).
//
// Latency: Stages enabled cycles, 0 is a wire. Throughput: one word a cycle. Back-pressure: enable_i = 0 holds. A word
// that enters with valid_i = 0 leaves unspecified, and costs nothing in simulation. Reset: synchronous, active low,
// needed for the address only; the content is data. Legal: Width >= 1.
module tsr_delay #(
  parameter int unsigned Width  = 1,
  parameter int unsigned Stages = 1
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             enable_i,
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  if (Stages == 0) begin : gen_wire
    assign data_o = data_i;
    logic unused;
    assign unused = &{1'b0, clk_i, rst_ni, enable_i, valid_i};
  end else if (Stages == 1) begin : gen_register
    logic [Width-1:0] line_q;
    always_ff @(posedge clk_i) begin
      if (enable_i && valid_i) line_q <= data_i;
    end
    assign data_o = line_q;
    logic unused;
    assign unused = &{1'b0, rst_ni};
  end else begin : gen_memory
    localparam int unsigned PointerBits = $clog2(Stages);
    logic [Width-1:0] line[Stages];
    logic [PointerBits-1:0] pointer_q;
    always_ff @(posedge clk_i) begin
      if (enable_i && valid_i) line[pointer_q] <= data_i;
    end
    always_ff @(posedge clk_i) begin
      if (!rst_ni) pointer_q <= '0;
      else if (enable_i) pointer_q <= pointer_q == PointerBits'(Stages - 1) ? '0 : pointer_q + 1'b1;
    end
    assign data_o = line[pointer_q];
  end

endmodule
