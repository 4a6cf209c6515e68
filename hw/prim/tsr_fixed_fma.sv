// SPDX-License-Identifier: Apache-2.0
// operand * factor + addend in 48 bits, for a vector of lanes: 18 by 42 bits, signed; what leaves 48 bits is lost. The
// factor is common to all lanes.
//
// Method: two partial products, by the factor's lower 17 and upper 25 bits, each of the size of a DSP slice's
// multiplier; the addend joins the lower one, whose carries join the upper one. With all registers they are two slices a
// lane, adders included, which is why each lane has its own signals.
//
// valid_i and the operands enter in stage 0, the lower factor too; the upper factor and the addend in stage 1, so that
// an addend may be made beside the first product. Registers: bit 0 after the lower product, 1 after its sum and the
// upper product, 2 after the sum of both. valid_i[k]: a vector is in stage k, and with
// valid_i[3] its sum is looked at. Latency: the number of ones, in enabled
// cycles. Throughput: one vector a cycle. Back-pressure: enable_i = 0 holds every register. Reset: none, data only.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_fixed_fma #(
  parameter int unsigned Lanes     = 1,
  parameter logic [2:0]  Registers = 3'd0
) (
  input  logic                clk_i,
  input  logic                enable_i,
  input  logic [3:0]          valid_i,
  input  logic [18*Lanes-1:0] operand_i,
  input  logic [16:0]         lower_i,
  input  logic [24:0]         upper_i,
  input  logic [48*Lanes-1:0] addend_i,
  output logic [48*Lanes-1:0] sum_o
);

  for (genvar l = 0; l < Lanes; l++) begin : gen_lane
    logic signed [17:0] operand_0, operand_1, lower_factor;
    logic signed [24:0] upper_factor;
    logic signed [47:0] lower_1, sum_1, sum_2, upper_2, total_2, total_3;
    logic [16:0] tail_3;
    assign operand_0 = operand_i[18*l+:18];
    assign lower_factor = $signed({1'b0, lower_i});
    assign upper_factor = upper_i;
    if (Registers[0]) begin : gen_register_0
      always_ff @(posedge clk_i) begin
        if (enable_i && valid_i[0]) begin
          lower_1 <= operand_0 * lower_factor;
          operand_1 <= operand_0;
        end
      end
    end else begin : gen_wire_0
      assign lower_1 = operand_0 * lower_factor;
      assign operand_1 = operand_0;
    end
    assign sum_1 = lower_1 + addend_i[48*l+:48];
    if (Registers[1]) begin : gen_register_1
      always_ff @(posedge clk_i) begin
        if (enable_i && valid_i[1]) begin
          sum_2 <= sum_1;
          upper_2 <= operand_1 * upper_factor;
        end
      end
    end else begin : gen_wire_1
      assign sum_2 = sum_1;
      assign upper_2 = operand_1 * upper_factor;
    end
    assign total_2 = upper_2 + (sum_2 >>> 17);
    if (Registers[2]) begin : gen_register_2
      always_ff @(posedge clk_i) begin
        if (enable_i && valid_i[2]) begin
          total_3 <= total_2;
          tail_3 <= sum_2[16:0];
        end
      end
    end else begin : gen_wire_2
      assign total_3 = total_2;
      assign tail_3 = sum_2[16:0];
    end
    always_comb begin
      if (!tsr_isa_pkg::Simulated) sum_o[48*l+:48] = 'x;
      if (!tsr_isa_pkg::Simulated || valid_i[3]) sum_o[48*l+:48] = {total_3[30:0], tail_3};
    end
    logic unused;
    assign unused = &{1'b0, total_3[47:31], clk_i, enable_i, valid_i};
  end

endmodule
/* verilator lint_on LATCH */
