# SPDX-License-Identifier: Apache-2.0
# What the wheel holds (pyproject.toml): one module with the whole of Tessera and of LLVM in it, the Python package, the
# verilated machines, and the sources that another machine is made of. The install component `wheel` puts them as
# site-packages has them. The module is linked from the objects of the build, so a build that stands gives a wheel in
# seconds.
pybind11_add_module(tessera_wheel NO_EXTRAS EXCLUDE_FROM_ALL bindings/python_bindings.cc bindings/python_tile.cc bindings/python_tuning.cc)
set_target_properties(tessera_wheel PROPERTIES OUTPUT_NAME _tessera TESSERA_STATIC_LLVM ON
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/wheel CXX_VISIBILITY_PRESET hidden)
target_link_libraries(tessera_wheel PRIVATE tessera_command tessera_tile)
if(TARGET tessera_onnxruntime_ep_objects)
  target_link_libraries(tessera_wheel PRIVATE tessera_onnxruntime_ep_objects)
endif()
target_link_options(tessera_wheel PRIVATE -Wl,--gc-sections $<$<CONFIG:Release>:-s>
  -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map)
set_target_properties(tessera_wheel PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_compile_definitions(tessera_wheel PRIVATE TESSERA_VERSION="${PROJECT_VERSION}")
tessera_cold(tessera_wheel)

if(TARGET tessera_grpc)
  add_dependencies(tessera_wheel tessera_grpc)
  install(TARGETS tessera_grpc LIBRARY DESTINATION tessera COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
install(TARGETS tessera_wheel LIBRARY DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY python/tessera DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
add_dependencies(tessera_wheel tessera_oip)
install(FILES ${TESSERA_OIP} DESTINATION tessera COMPONENT wheel EXCLUDE_FROM_ALL)
if(TARGET tessera_verilated)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/tessera/rtl DESTINATION tessera COMPONENT wheel EXCLUDE_FROM_ALL
          FILES_MATCHING REGEX "/(npu|pynq|ultra|kv)[^/]*\\.so$")
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/hw/rtl ${PROJECT_SOURCE_DIR}/hw/prim DESTINATION tessera/share/hw
          COMPONENT wheel EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.sv")
  install(FILES ${PROJECT_SOURCE_DIR}/isa/generated/tsr_isa_pkg.sv DESTINATION tessera/share/isa/generated
          COMPONENT wheel EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_SOURCE_DIR}/sim/verilator/model.cc ${PROJECT_SOURCE_DIR}/sim/verilator/model_api.h
          DESTINATION tessera/share/sim/verilator COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
