# SPDX-License-Identifier: Apache-2.0
# Packages the machine as a Vitis kernel. Enters: the folder that configure.py wrote, and the name of the .xo. Leaves: the
# .xo, and the packaged IP in the folder's subfolder ip.
#
#   vivado -mode batch -source package_kernel.tcl -tclargs FOLDER KERNEL.xo
#
# Ports, bus interfaces and registers are stated and do not rest on what the packager infers: an interface that it has
# found already is kept, a missing one is added, and in the end every port must belong to exactly one.

if {[llength $argv] != 2} {
  error "usage: vivado -mode batch -source package_kernel.tcl -tclargs FOLDER KERNEL.xo"
}
set folder [file normalize [lindex $argv 0]]
set xo [file normalize [lindex $argv 1]]
set here [file dirname [file normalize [info script]]]
source [file join $here .. .. isa generated kernel_arguments.tcl]
source [file join $folder sources.tcl]
set ip [file join $folder ip]

# The interface of a bus or signal; `names` are its ports.
proc interface {core name names vlnv} {
  if {[llength [ipx::get_bus_interfaces -quiet $name -of_objects $core]] == 0} {
    ipx::infer_bus_interface $names $vlnv $core
  }
  set found [ipx::get_bus_interfaces -quiet $name -of_objects $core]
  if {[llength $found] != 1} {
    error "interface $name was not made of the ports $names"
  }
  return $found
}

proc bus_parameter {bus name value} {
  set parameter [ipx::get_bus_parameters -quiet $name -of_objects $bus]
  if {[llength $parameter] == 0} {
    set parameter [ipx::add_bus_parameter $name $bus]
  }
  set_property value $value $parameter
}

# Names of the ports that start with a prefix.
proc ports_of {core prefix} {
  set names {}
  foreach port [ipx::get_ports -of_objects $core] {
    set name [get_property NAME $port]
    if {[string match "${prefix}_*" $name]} {
      lappend names $name
    }
  }
  return $names
}

# The project: sources, top module.
foreach file [concat $kernel_sources [list $kernel_xml]] {
  if {![file exists $file]} {
    error "$file does not exist; run configure.py again"
  }
}
create_project -force kernel [file join $folder project]
add_files -norecurse $kernel_sources
set_property top $kernel_name [current_fileset]
if {[llength $kernel_ultra] != 0} {
  # The constraint that sends memories to UltraRAM goes into the package, since the kernel is synthesised alone.
  add_files -fileset constrs_1 -norecurse [file join $folder memories.xdc]
}
update_compile_order -fileset sources_1

# A core of it.
ipx::package_project -force -root_dir $ip -vendor $kernel_vendor -library $kernel_library -taxonomy /KernelIP \
  -import_files -set_current false
ipx::unload_core [file join $ip component.xml]
ipx::edit_ip_in_project -upgrade true -name edit -directory [file join $folder edit] [file join $ip component.xml]
set core [ipx::current_core]
set_property name $kernel_name $core
set_property version $kernel_version $core
set_property display_name $kernel_name $core
set_property description $kernel_description $core
foreach parameter [ipx::get_user_parameters -of_objects $core] {
  ipx::remove_user_parameter [get_property NAME $parameter] $core
}

# Interfaces.
set control [interface $core $kernel_control [ports_of $core $kernel_control] xilinx.com:interface:aximm_rtl:1.0]
set memory [interface $core $kernel_memory [ports_of $core $kernel_memory] xilinx.com:interface:aximm_rtl:1.0]
set clock [interface $core $kernel_clock $kernel_clock xilinx.com:signal:clock_rtl:1.0]
set reset [interface $core $kernel_reset $kernel_reset xilinx.com:signal:reset_rtl:1.0]
set line [interface $core $kernel_interrupt $kernel_interrupt xilinx.com:signal:interrupt_rtl:1.0]
bus_parameter $reset POLARITY ACTIVE_LOW
bus_parameter $line SENSITIVITY LEVEL_HIGH
bus_parameter $memory SUPPORTS_NARROW_BURST 0
bus_parameter $memory MAX_BURST_LENGTH $kernel_burst
bus_parameter $memory NUM_READ_OUTSTANDING $kernel_reads
bus_parameter $memory NUM_WRITE_OUTSTANDING $kernel_writes
ipx::associate_bus_interfaces -busif $kernel_control -clock $kernel_clock $core
ipx::associate_bus_interfaces -busif $kernel_memory -clock $kernel_clock $core
ipx::associate_bus_interfaces -clock $kernel_clock -reset $kernel_reset $core

# The master sees all of memory.
if {[llength [ipx::get_address_spaces -quiet $kernel_memory -of_objects $core]] == 0} {
  set space [ipx::add_address_space $kernel_memory $core]
  set_property range 16E $space
  set_property width 64 $space
}
set_property master_address_space_ref $kernel_memory $memory

# The registers that software and linker know: block control and arguments.
if {[llength [ipx::get_memory_maps -quiet $kernel_control -of_objects $core]] != 0} {
  ipx::remove_memory_map $kernel_control $core
}
set map [ipx::add_memory_map $kernel_control $core]
set block [ipx::add_address_block reg0 $map]
set_property range $kernel_control_range $block
set_property width 32 $block
foreach control_register $kernel_controls {
  lassign $control_register name offset bits access description fields
  set register [ipx::add_register $name $block]
  set_property address_offset $offset $register
  set_property size $bits $register
  set_property access $access $register
  set_property description $description $register
  foreach entry $fields {
    lassign $entry field_name lsb width field_access field_description
    set field [ipx::add_field $field_name $register]
    set_property bit_offset $lsb $field
    set_property bit_width $width $field
    set_property access $field_access $field
    set_property description $field_description $field
  }
}
foreach argument $kernel_arguments {
  lassign $argument name offset bits bus description
  set register [ipx::add_register $name $block]
  set_property address_offset $offset $register
  set_property size $bits $register
  set_property access read-write $register
  set_property description $description $register
  if {$bus ne ""} {
    set parameter [ipx::add_register_parameter ASSOCIATED_BUSIF $register]
    set_property value $bus $parameter
  }
}
set_property slave_memory_map_ref $kernel_control $control

# A kernel of it.
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
set_property vitis_drc {ctrl_protocol ap_ctrl_hs} $core
set_property ipi_drc {ignore_freq_hz true} $core
set_property supported_families {} $core
set_property auto_family_support_level level_2 $core
set_property core_revision 1 $core

# A port outside all interfaces is refused by the linker, hours later.
set mapped {}
foreach bus [ipx::get_bus_interfaces -of_objects $core] {
  foreach pair [ipx::get_port_maps -of_objects $bus] {
    lappend mapped [get_property PHYSICAL_NAME $pair]
  }
}
foreach port [ipx::get_ports -of_objects $core] {
  set name [get_property NAME $port]
  set times [llength [lsearch -all -exact $mapped $name]]
  if {$times != 1} {
    error "port $name belongs to $times interfaces, must belong to one"
  }
}

ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity -kernel -xrt $core
ipx::save_core $core
close_project -delete
file mkdir [file dirname $xo]
package_xo -force -xo_path $xo -kernel_name $kernel_name -ip_directory $ip -kernel_xml $kernel_xml
if {![file exists $xo]} {
  error "package_xo wrote no $xo"
}
puts "packaged $kernel_config: $xo"
