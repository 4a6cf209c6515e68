# SPDX-License-Identifier: Apache-2.0
# A Pynq-Z2: Zynq-7020, 512 MB DDR3 at the processor. Its port HP0 has 64 bits and speaks AXI3: the interconnect cuts bursts.
set board_part_name xc7z020clg400-1
set board_files tul.com.tw:pynq-z2:part0:1.0
set processor_ip xilinx.com:ip:processing_system7:5.5
set processor_rule xilinx.com:bd_rule:processing_system7
set processor_preset {apply_board_preset 1 make_external {FIXED_IO, DDR}}
set processor_settings {CONFIG.PCW_USE_M_AXI_GP0 1 CONFIG.PCW_USE_S_AXI_HP0 1 CONFIG.PCW_S_AXI_HP0_DATA_WIDTH 64
  CONFIG.PCW_EN_CLK0_PORT 1 CONFIG.PCW_EN_RST0_PORT 1 CONFIG.PCW_USE_FABRIC_INTERRUPT 1 CONFIG.PCW_IRQ_F2P_INTR 1}
set processor_clock_setting CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ
set processor_pins {clock FCLK_CLK0 reset FCLK_RESET0_N interrupt IRQ_F2P
  control_clock M_AXI_GP0_ACLK memory_clock S_AXI_HP0_ACLK}
set processor_ports {control M_AXI_GP0 memory S_AXI_HP0}
set register_base 0x40000000
set memory_kilobytes 0x80000
