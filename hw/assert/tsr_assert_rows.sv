// SPDX-License-Identifier: Apache-2.0
// Rows between start and end, bound to tsr_rows: outside of an instruction nothing is asked for and nothing written; the
// instruction stands; it reads every vector of its rows once, or once for sums and once for results beside them; other
// operations of ROW_MAP and maxima in the order of the nest;
// ROW_MAP writes as many vectors as it has read and no scalars,
// ROW_REDUCE a scalar for each row and no vectors, each write until it is granted; tables and PARAM are read by operations
// that have them; no destination is read before it is written.
module tsr_assert_rows (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic                  start_i,
  input logic [511:0]          word_i,
  input logic                  done_o,
  input logic                  issue_o,
  input logic                  acc_req_o,
  input logic                  acc_we_o,
  input logic [13:0]           acc_waddr_o,
  input logic [127:0]          acc_wdata_o,
  input logic                  acc_wgnt_i,
  input logic                  src_req_o,
  input logic                  src_claim_o,
  input logic [13:0]           src_addr_o,
  input logic                  src_gnt_i,
  input logic                  dst_we_o,
  input logic [13:0]           dst_addr_o,
  input logic                  param_req_o,
  input logic                  look_up_o,
  input logic                  result_look_up_o
);

  tsr_isa_pkg::row_map_t map;
  logic mapping, both, ordered, looks, results_look, channels;
  assign map = word_i;
  assign mapping = map.header.opcode == 6'(tsr_isa_pkg::OpcodeRowMap);
  assign both = mapping && map.operation == 2'(tsr_isa_pkg::MappingSumSoftmax);
  assign ordered = mapping ? !both : map.operation == 2'(tsr_isa_pkg::ReductionMax);
  assign looks = mapping ? both : map.operation == 2'(tsr_isa_pkg::ReductionSumExp);
  assign results_look = mapping && !channels;
  assign channels = mapping && map.operation == 2'(tsr_isa_pkg::MappingNormalise);

  logic busy_q, read_q, held_q;
  logic [511:0] word_q;
  logic [13:0] scalar_q, read_address_q;
  logic [127:0] data_q, before_q;
  longint unsigned rows, vectors, reads, written, scalars;
  // ROW_MAP goes through the nest in its order: iterations of the loops, and what is still to be written.
  int unsigned index[6];
  logic [13:0] source, target;
  logic [13:0] waits[$];

  always_comb begin
    source = map.src_addr;
    target = map.dst_addr;
    for (int unsigned k = 0; k < 6; k++) begin
      source = source + 14'(index[k]) * map.src_stride[k];
      target = target + 14'(index[k]) * map.dst_stride[k];
    end
  end

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      read_q <= 1'b0;
      held_q <= 1'b0;
      waits.delete();
    end else begin
      `TSR_ASSERT(!(start_i && busy_q), "rows start while others run")
      `TSR_ASSERT(busy_q || !(done_o || issue_o || acc_req_o || acc_we_o || src_req_o || dst_we_o || param_req_o || look_up_o ||
                    result_look_up_o),
                  "rows at work without an instruction")
      if (start_i) begin
        busy_q <= 1'b1;
        word_q <= word_i;
        rows = 1;
        vectors = 1;
        for (int unsigned k = 0; k < 6; k++) begin
          if (32'(map.row) + k < 6) rows = rows * 64'(map.extent[k]);
          vectors = vectors * 64'(map.extent[k]);
        end
        for (int unsigned k = 0; k < 6; k++) index[k] = 0;
        reads = 0;
        written = 0;
        scalars = 0;
      end
      if (busy_q) begin
        `TSR_ASSERT(word_q == word_i, "rows' instruction changed")
        `TSR_ASSERT(!look_up_o || looks, "rows read tables that they have not")
        `TSR_ASSERT(!result_look_up_o || results_look, "rows read tables for results that they have not")
        `TSR_ASSERT(!param_req_o || channels, "rows read channels that they have not")
        `TSR_ASSERT(issue_o == read_q, "rows lost a vector")
        `TSR_ASSERT(!held_q || (acc_we_o && acc_waddr_o == scalar_q && before_q == data_q),
                    "a row's scalars changed before they were written")
        if (dst_we_o) begin
          `TSR_ASSERT(mapping && (both ? written < reads : waits.size() != 0), "rows write a vector that they did not read")
          if (waits.size() != 0) begin
            `TSR_ASSERT(dst_addr_o == waits[0], "rows write a vector to another one's place")
            void'(waits.pop_front());
          end
          written = written + 1;
        end
        if (src_req_o && map.src == 2'(tsr_isa_pkg::AluSpaceInp))
          `TSR_ASSERT(src_claim_o, "rows read INP without a claim")
        if (src_req_o && src_gnt_i && ordered) begin
          `TSR_ASSERT(src_addr_o == source, "rows read out of order")
          for (int unsigned k = 0; k < waits.size(); k++)
            `TSR_ASSERT(map.src != map.dst || waits[k] != src_addr_o, "rows read what they have not written yet")
          if (mapping) waits.push_back(target);
          for (int signed k = 5; k >= 0; k--) begin
            index[k] = index[k] + 1;
            if (index[k] != 32'(map.extent[k])) break;
            index[k] = 0;
          end
        end
        if (src_req_o && src_gnt_i) reads = reads + 1;
        if (acc_we_o) `TSR_ASSERT(!mapping && scalars < rows, "rows write scalars that they have not")
        if (acc_we_o && acc_wgnt_i) scalars = scalars + 1;
        if (done_o) begin
          `TSR_ASSERT(reads == (both ? 2 * vectors : vectors), "rows ended with vectors not read")
          `TSR_ASSERT(written == (mapping ? vectors : 0), "rows ended with vectors not written")
          `TSR_ASSERT(scalars == (mapping ? 0 : rows), "rows ended with scalars not written")
          busy_q <= 1'b0;
          waits.delete();
        end
      end
      read_q <= src_req_o && src_gnt_i;
      held_q <= acc_we_o && !acc_wgnt_i;
      scalar_q <= acc_waddr_o;
      before_q <= acc_wdata_o;
      data_q <= before_q;
    end
  end

endmodule

bind tsr_rows tsr_assert_rows u_assert (.*);
