# Embeds the device library into the library as text: every .cuh under codegen/device, and the table
# of pointwise formulas, which device code shares with the host. The generated file is made anew when
# one of them changes. A link beside it gives the files their virtual names on disk as well, for
# tests that compile device code on the host.

function(sinter_embed_device_library target)
  set(root ${PROJECT_SOURCE_DIR})
  set(generated ${PROJECT_BINARY_DIR}/generated)
  file(GLOB_RECURSE device_files CONFIGURE_DEPENDS RELATIVE ${root}/codegen/device
       ${root}/codegen/device/*.cuh)
  set(names sinter/ops/pointwise.hpp)
  set(inputs ${root}/include/sinter/ops/pointwise.hpp)
  foreach(file IN LISTS device_files)
    list(APPEND names sinter/device/${file})
    list(APPEND inputs ${root}/codegen/device/${file})
  endforeach()
  string(REPLACE ";" "|" joined_names "${names}")
  string(REPLACE ";" "|" joined_inputs "${inputs}")
  add_custom_command(
    OUTPUT ${generated}/embedded_files.cpp
    COMMAND ${CMAKE_COMMAND} "-DNAMES=${joined_names}" "-DINPUTS=${joined_inputs}"
            -DOUTPUT=${generated}/embedded_files.cpp
            -P ${root}/codegen/embed/write_embedded.cmake
    DEPENDS ${inputs} ${root}/codegen/embed/write_embedded.cmake
    COMMENT "Embedding the device library" VERBATIM)
  target_sources(${target} PRIVATE ${generated}/embedded_files.cpp)
  file(MAKE_DIRECTORY ${generated}/sinter)
  file(CREATE_LINK ${root}/codegen/device ${generated}/sinter/device SYMBOLIC)
endfunction()
