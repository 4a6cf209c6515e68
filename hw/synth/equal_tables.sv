// SPDX-License-Identifier: Apache-2.0
// tsr_alu_tables over the first words of a table: what check.py proves equal for the form that the simulator reads and
// the one for synthesis.
module equal_tables #(
  parameter int unsigned TableBytes = 4,
  parameter int unsigned Lanes      = 2,
  parameter int unsigned Parity     = 0
) (
  input  logic                    clk_i,
  input  logic                    first_i,
  input  logic [4*Lanes-1:0]      first_index_i,
  output logic [8*Lanes-1:0]      first_bytes_o,
  input  logic                    second_i,
  input  logic                    second_none_i,
  input  logic [4*Lanes-1:0]      second_index_i,
  output logic [8*Lanes-1:0]      second_bytes_o,
  output logic [Lanes-1:0]        second_parity_o,
  output logic                    error_o,
  input  logic                    we_i,
  input  logic [3:0]              waddr_i,
  input  logic [8*TableBytes-1:0] wdata_i,
  input  logic [TableBytes-1:0]   wbe_i
);

  logic [12*Lanes-1:0] first_index, second_index;
  always_comb begin
    first_index = '0;
    second_index = '0;
    for (int unsigned l = 0; l < Lanes; l++) begin
      first_index[12*l+:4] = first_index_i[4*l+:4];
      second_index[12*l+:4] = second_index_i[4*l+:4];
    end
  end
  tsr_alu_tables #(.Lanes(Lanes), .SecondLanes(Lanes), .TableCount(1), .TableBytes(TableBytes), .Parity(Parity)) u_tables (
    .clk_i, .first_i, .first_index_i(first_index), .first_bytes_o, .second_i, .second_none_i,
    .second_index_i(second_index), .second_bytes_o, .second_parity_o, .we_i, .waddr_i((22 - $clog2(TableBytes))'(waddr_i) & 3),
    .wdata_i, .wbe_i, .error_o
  );

endmodule
