# Adds a file to the target that defines `std::span<const EmbeddedFile> sinter::FUNCTION()`: the texts
# of the files INPUTS under NAMES. It is made anew when one of them changes.
function(sinter_embed target function names inputs)
  set(output ${PROJECT_BINARY_DIR}/generated/${function}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/codegen/embed/write_embedded.cmake)
  string(REPLACE ";" "|" joined_names "${names}")
  string(REPLACE ";" "|" joined_inputs "${inputs}")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DNAMES=${joined_names}" "-DINPUTS=${joined_inputs}"
            -DOUTPUT=${output} -DFUNCTION=${function} -P ${script}
    DEPENDS ${inputs} ${script}
    COMMENT "Embedding ${function}" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# Embeds the device library into the library as text: every .cuh under codegen/device, and the table
# of pointwise formulas, which device code shares with the host. A link beside it gives the files their
# virtual names on disk as well, for tests that compile device code on the host.
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
  sinter_embed(${target} embedded_files "${names}" "${inputs}")
  file(MAKE_DIRECTORY ${generated}/sinter)
  file(CREATE_LINK ${root}/codegen/device ${generated}/sinter/device SYMBOLIC)
endfunction()
