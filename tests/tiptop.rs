//! Parameter files of TIPTOP as system files: what is written of each example, and the command that writes it.

use crate::cli::{Checked, Run};
use lenslet::formats::Imported;
use lenslet::model::SystemFile;
use lenslet::psf::PsfOptions;
use std::path::PathBuf;

const EXAMPLES: [&str; 5] = ["ERIS_LGS", "HarmoniLTAO_1", "MAVIS", "MORFEO", "MUSE_LTAO"];

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("book/systems/tiptop/{name}.ini"))
}

#[test]
fn examples_are_written_as_they_were() {
    for name in EXAMPLES {
        let text = std::fs::read_to_string(example(name)).unwrap();
        let imported = Imported::from_tiptop(&text, &format!("{name}.ini")).unwrap();
        let file = SystemFile::from_toml(&imported.toml, name).unwrap();
        let options = PsfOptions::from_system_file(&file).unwrap();
        assert_eq!(options.correction.weights.len(), file.system().unwrap().targets().len());
        insta::assert_snapshot!(format!("import_{name}"), imported.toml);
    }
}

#[test]
fn the_command_writes_a_system_file() -> Checked {
    let run = Run::new()?;
    let muse = example("MUSE_LTAO");
    let output = run.lenslet(&format!("import {} -o muse.toml", muse.display()))?;
    let (said, warned) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{warned}");
    // What is dropped and matters is a warning: the defocus in nanometres, and the rate of the natural star.
    for warning in [
        "warning: line 14: telescope.zCoefStaticOn = [0,0,100]: a static aberration of 100 nm rms (focus 100 nm) is not modelled",
        "warning: line 108: RTC.SensorFrameRate_LO = 200.0: the other sensors have 1000 Hz, and all are taken to be in one loop",
    ] {
        assert!(warned.contains(warning), "{warned}");
    }
    assert!(!said.contains("SensorFrameRate_LO"), "{said}");
    assert!(said.contains("5 guide stars, 10 layers, ltao with 1 mirror, 1 target"), "{said}");
    assert!(said.contains("telescope.Resolution: the grid of the pupil"), "{said}");
    let written = std::fs::read_to_string(run.path("muse.toml"))?;
    let printed = run.lenslet(&format!("import {}", muse.display()))?;
    assert_eq!(String::from_utf8(printed.stdout)?, written);
    let plan = run.lenslet("psf muse.toml --plan")?;
    assert!(String::from_utf8(plan.stdout)?.contains("images of 1 target"));
    let apart = "guide_star[4].sensor.rate = 200: loop.rate is 1000 Hz, and all sensors are taken to be in one loop";
    let warned = String::from_utf8(plan.stderr)?;
    assert!(warned.contains("warning: muse.toml:") && warned.contains(apart), "{warned}");
    let plan = run.lenslet("psf muse.toml --plan --json")?;
    let told: serde_json::Value = serde_json::from_slice(&plan.stdout)?;
    assert!(told["warnings"][0].as_str().is_some_and(|text| text.contains(apart)), "{told}");
    let output = run.lenslet(&format!("import {} -o muse.toml --json", muse.display()))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(told["warnings"].as_array().map(Vec::len), Some(2), "{told}");
    let key = &told["keys"][0];
    assert_eq!((&key["key"], &key["line"]), (&"telescope.TelescopeDiameter".into(), &2.into()));
    assert_eq!((&key["fate"], &key["told"]), (&"converted".into(), &"telescope.diameter".into()));
    assert!(run.lenslet(&format!("import {} -o muse.toml -q", muse.display()))?.stdout.is_empty());
    Ok(())
}

#[test]
fn the_command_refuses_and_warns() -> Checked {
    let run = Run::new()?;
    let muse = std::fs::read_to_string(example("MUSE_LTAO"))?;
    std::fs::write(run.path("bad.ini"), muse.replace("Seeing = 0.67", "Seeing = fine"))?;
    run.refuses(
        "import bad.ini -o a.toml",
        &["bad.ini:19: atmosphere.Seeing = fine: expected a literal"],
    )?;
    run.refuses("import none.ini -o a.toml", &["none.ini"])?;
    run.refuses("import bad.ini -o bad.ini", &["bad.ini"])?;
    std::fs::write(run.path("latin.ini"), b"[telescope]\n; \xe9\n")?;
    run.refuses("import latin.ini -o a.toml", &["latin.ini:2: expected text in UTF-8"])?;
    std::fs::write(run.path("odd.ini"), muse.replace("PupilAngle", "PupilAngel"))?;
    let output = run.lenslet("import odd.ini -o odd.toml")?;
    let warned = String::from_utf8(output.stderr)?;
    let wanted = "warning: line 8: telescope.PupilAngel = 0.0: TIPTOP documents no such key";
    assert!(output.status.success() && warned.contains(wanted), "{warned}");
    assert!(
        std::fs::read_to_string(run.path("odd.toml"))?
            .contains("# telescope.PupilAngel = 0.0: unknown")
    );
    Ok(())
}

#[test]
fn directions_of_optimisation_are_no_images() -> Checked {
    let run = Run::new()?;
    let output = run.lenslet(&format!("import {} -o mavis.toml", example("MAVIS").display()))?;
    let said = String::from_utf8(output.stdout)?;
    assert!(
        said.contains("9 targets, 28 directions without images that mirrors are for"),
        "{said}"
    );
    let file = SystemFile::from_file(run.path("mavis.toml"))?;
    let system = file.system()?;
    assert_eq!((system.targets().len(), system.optimisation().len()), (9, 28));
    let plan = run.lenslet("psf mavis.toml --plan --json")?;
    let told: serde_json::Value = serde_json::from_slice(&plan.stdout)?;
    assert!(told.to_string().contains("images of 9 targets"), "{told}");
    // A target in a direction of the optimisation has its weight, the others of the file have none.
    let options = PsfOptions::from_system_file(&file)?;
    let correction = lenslet::correction::Correction::new(&system, &options.correction)?;
    assert_eq!((correction.targets(), correction.system().targets().len()), (9, 37));
    Ok(())
}

#[test]
fn comments_are_kept() -> Checked {
    for name in EXAMPLES {
        let text = std::fs::read_to_string(example(name))?;
        let toml = Imported::from_tiptop(&text, &format!("{name}.ini"))?.toml;
        for line in text.lines().map(str::trim).filter(|line| line.starts_with([';', '#'])) {
            let comment = line.trim_start_matches([';', '#']).trim();
            assert!(toml.contains(comment), "{name}: {comment}");
        }
    }
    let text = std::fs::read_to_string(example("MUSE_LTAO"))?;
    let text = text.replace("Seeing = 0.67", "Seeing = 0.67 # \u{7}median of the \"site\"");
    let text = text.replace("L0 = 27.44", "L0 = 27.44\n   # an outer scale");
    let toml = Imported::from_tiptop(&text, "x.ini")?.toml;
    assert!(toml.contains("# 19, atmosphere.Seeing: median of the \"site\""), "{toml}");
    assert!(toml.contains(": an outer scale"), "{toml}");
    Ok(())
}

#[test]
fn large_arrays_are_imported_at_once() -> Checked {
    let run = Run::new()?;
    let text = std::fs::read_to_string(example("MUSE_LTAO"))?;
    let text =
        text.replace("[40,40,40,40]", "[10000]").replace("DmPitchs = [0.222]", "DmPitchs = [0.5]");
    std::fs::write(run.path("large.ini"), text)?;
    let start = std::time::Instant::now();
    let output = run.lenslet("import large.ini -o large.toml")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Less than a second alone; before, 20 seconds.
    assert!(start.elapsed().as_secs_f64() < 15.0, "{:?}", start.elapsed());
    Ok(())
}
