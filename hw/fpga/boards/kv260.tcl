# SPDX-License-Identifier: Apache-2.0
# A KV260: a K26 module, 4 GB DDR4 at the processor, of which port HP0 reaches the lower 2; 128 bits.
set board_part_name xck26-sfvc784-2LV-c
set board_files xilinx.com:kv260_som:part0:1.4
set processor_ip xilinx.com:ip:zynq_ultra_ps_e:3.4
set processor_rule xilinx.com:bd_rule:zynq_ultra_ps_e
set processor_preset {apply_board_preset 1}
set processor_settings {CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0
  CONFIG.PSU__USE__S_AXI_GP2 1 CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 CONFIG.PSU__FPGA_PL0_ENABLE 1
  CONFIG.PSU__USE__FABRIC__RST 1 CONFIG.PSU__USE__IRQ0 1}
set processor_clock_setting CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ
set processor_pins {clock pl_clk0 reset pl_resetn0 interrupt pl_ps_irq0 control_clock maxihpm0_fpd_aclk
  memory_clock saxihp0_fpd_aclk}
set processor_ports {control M_AXI_HPM0_FPD memory S_AXI_HP0_FPD}
set register_base 0xA0000000
set memory_kilobytes 0x200000
