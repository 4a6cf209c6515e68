// SPDX-License-Identifier: Apache-2.0
// The address nest of GEMM and ALU: six counters, loop 5 innermost, and for each operand the entry addressed now. Each
// loop keeps the address at which it stands with all deeper loops at 0; a loop that steps adds its stride to that, and
// the deeper ones restart from there, so that no multiplier is needed. Addresses are modulo 2^14, which is exact once
// the range check has passed.
//
// Latency: load_i in cycle t, outputs of the first iteration in t + 1. Throughput: one iteration a cycle. Extents,
// strides and reduce_i must hold from t + 1 on. Reset: synchronous, active low. inner_last_o bit k: loops k to 5 all
// stand at their last iteration.
module tsr_nest #(
  parameter int unsigned Operands = 3
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  logic                   load_i,
  input  logic                   advance_i,
  input  logic [14*Operands-1:0] addr_i,
  input  logic [71:0]            extent_i,
  input  logic [84*Operands-1:0] stride_i,
  input  logic [2:0]             reduce_i,
  output logic [14*Operands-1:0] addr_o,
  output logic [71:0]            index_o,
  output logic [5:0]             inner_last_o,
  output logic                   sum_first_o,
  output logic                   sum_last_o,
  output logic                   last_o
);

  localparam int unsigned Loops = tsr_isa_pkg::Loops;
  localparam int unsigned AddressBits = tsr_isa_pkg::GemmInpAddrWidth;
  localparam int unsigned Nest = AddressBits * Loops;
  tsr_isa_pkg::gemm_extent_t extent, index_q, index_d;
  logic [Nest*Operands-1:0] base_q, base_d;
  logic first_q;
  logic [5:0] inner_last;

  assign extent = extent_i;
  always_comb begin
    logic chain;
    chain = 1'b1;
    inner_last = '0;
    for (int unsigned n = 0; n < Loops; n++) begin
      chain = chain && index_q.loop[Loops-1-n] == extent.loop[Loops-1-n] - 12'd1;
      inner_last[Loops-1-n] = chain;
    end
  end

  always_comb begin
    sum_last_o = 1'b1;
    for (int unsigned k = 0; k < Loops; k++) begin
      if (reduce_i == 3'(Loops - k)) sum_last_o = inner_last[k];
    end
  end

  always_comb begin
    logic step;
    logic [13:0] address;
    index_d = index_q;
    base_d = base_q;
    address = '0;
    step = 1'b0;
    if (advance_i) begin
      for (int unsigned k = 0; k < Loops; k++) begin
        step = k == Loops - 1 || inner_last[k < Loops - 1 ? k + 1 : k];
        if (step) index_d.loop[k] = inner_last[k] ? 12'd0 : index_q.loop[k] + 12'd1;
      end
      for (int unsigned n = 0; n < Operands; n++) begin
        for (int unsigned k = 0; k < Loops; k++) begin
          if (inner_last[k]) begin
            base_d[Nest*n+AddressBits*k+:AddressBits] = address;
          end else begin
            address = base_q[Nest*n+AddressBits*k+:AddressBits];
            if (k == Loops - 1 || inner_last[k < Loops - 1 ? k + 1 : k]) begin
              address = address + stride_i[Nest*n+AddressBits*k+:AddressBits];
              base_d[Nest*n+AddressBits*k+:AddressBits] = address;
            end
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      index_q <= '0;
      base_q <= '0;
      first_q <= 1'b0;
    end else if (load_i) begin
      index_q <= '0;
      for (int unsigned n = 0; n < Operands; n++) base_q[Nest*n+:Nest] <= {Loops{addr_i[AddressBits*n+:AddressBits]}};
      first_q <= 1'b1;
    end else if (advance_i) begin
      index_q <= index_d;
      base_q <= base_d;
      first_q <= sum_last_o;
    end
  end

  always_comb begin
    addr_o = '0;
    for (int unsigned n = 0; n < Operands; n++) addr_o[AddressBits*n+:AddressBits] = base_q[Nest*(n+1)-AddressBits+:AddressBits];
  end
  assign index_o = index_q;
  assign inner_last_o = inner_last;
  assign sum_first_o = first_q;
  assign last_o = inner_last[0];

endmodule
